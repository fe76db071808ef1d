"""Caches of transformers as results and arguments of programs, and in what compares programs with eager."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils import _pytree

import torchstone
from torchstone.errors import InputMismatch
from torchstone.parity.model import Model
from torchstone.parity.verify import verify
from torchstone.torch_internals.caches import caches_as_trees

transformers = pytest.importorskip("transformers", reason="the extra torchstone[models] is not installed")
TOKENS = {"vocab_size": 99, "bos_token_id": 1, "eos_token_id": 2}


def gpt2() -> Any:
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=2, n_head=4, n_embd=32, **TOKENS))


def mistral() -> Any:
    """A model with a sliding window, which is shorter than the prompt."""
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = transformers.MistralConfig(num_key_value_heads=2, sliding_window=4, **sizes, **TOKENS)
    return transformers.MistralForCausalLM(config)


def t5() -> Any:
    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}
    return transformers.T5ForConditionalGeneration(
        transformers.T5Config(vocab_size=99, decoder_start_token_id=0, **sizes)
    )


def made(make: Any) -> Any:
    torch.manual_seed(0)
    return make().eval()


def tokens(*shape: int) -> torch.Tensor:
    return torch.randint(3, 99, shape, generator=torch.Generator().manual_seed(1))


def assert_same(found: Any, expected: Any) -> None:
    """Check that a program's record has the tensors and numbers of a cache."""
    if isinstance(expected, torch.Tensor):
        torch.testing.assert_close(found, expected)
    elif isinstance(expected, (list, dict)):
        pairs = expected.items() if isinstance(expected, dict) else enumerate(expected)
        assert len(found) == len(expected)
        for key, value in pairs:
            assert_same(found[key], value)
    elif hasattr(expected, "__dict__"):
        assert found.type_name == type(expected).__name__
        for name, value in found.items():
            assert_same(value, getattr(expected, name))
    else:
        assert found == expected


def reloaded(program: Any, tmp_path: Path) -> Any:
    program.save(tmp_path / "program.stone")
    return torchstone.load(tmp_path / "program.stone")


@pytest.mark.parametrize("make", [gpt2, mistral, t5])
def test_a_cache_is_a_result(tmp_path: Path, make: Any) -> None:
    model, given = made(make), {"input_ids": tokens(2, 5)}
    if make is t5:
        given["decoder_input_ids"] = tokens(2, 3)
    before = dict(_pytree.SUPPORTED_NODES)
    program = reloaded(torchstone.export(model, (), given), tmp_path)
    assert dict(_pytree.SUPPORTED_NODES) == before
    with torch.no_grad():
        found, expected = program(**given), model(**given)
    torch.testing.assert_close(found.logits, expected.logits)
    assert_same(found.past_key_values, expected.past_key_values)
    parts = found.past_key_values.get("self_attention_cache", found.past_key_values)
    assert [one["keys"].ndim for one in parts.layers] == [4, 4]


def test_a_cache_of_any_length_is_an_argument(tmp_path: Path) -> None:
    model, token, long = made(gpt2), tokens(2, 1), torch.export.Dim.AUTO
    with torch.no_grad():
        short, cache = model(tokens(2, 5)).past_key_values, model(tokens(2, 9)).past_key_values
    layer = [{2: long}, {2: long}, None]
    shapes = {"input_ids": None, "past_key_values": [[layer, layer], None]}
    program = torchstone.export(model, (token,), {"past_key_values": short}, dynamic_shapes=shapes)
    assert short.get_seq_length() == 5
    program, given = reloaded(program, tmp_path), copy.deepcopy(cache)
    for _ in range(3):
        found = program(token, past_key_values=given)
        with torch.no_grad():
            expected = model(token, past_key_values=cache)
        torch.testing.assert_close(found.logits, expected.logits)
        given = found.past_key_values  # the record is passed as the next cache
    assert_same(given, cache)


def test_a_number_of_a_cache_is_checked() -> None:
    """The number of tokens that a sliding window has seen decides which masks are made."""
    model, token = made(mistral), tokens(1, 1)
    with torch.no_grad():
        cache, longer = model(tokens(1, 6)).past_key_values, model(tokens(1, 7)).past_key_values
        program = torchstone.export(model, (token,), {"past_key_values": copy.deepcopy(cache)})
        found = program(token, past_key_values=cache)
        torch.testing.assert_close(found.logits, model(token, past_key_values=cache).logits)
    with pytest.raises(InputMismatch, match=r"cumulative_length is 7; the program was exported for 6"):
        program(token, past_key_values=longer)


def test_no_tensor_of_a_cache_stays_behind() -> None:
    """A tensor that stays behind would be a constant of the program."""
    cache = transformers.DynamicCache()
    cache.states, cache._quantized = {0: torch.zeros(1), 1: None}, (torch.ones(2), "int4")
    with caches_as_trees():
        leaves = _pytree.tree_leaves(cache)
    assert [one.tolist() for one in leaves if isinstance(one, torch.Tensor)] == [[0.0], [1.0, 1.0]]


@pytest.mark.conformance
def test_caches_are_compared() -> None:
    found = verify(Model("gpt2", made(gpt2), (tokens(2, 5),)))
    assert found.passed
    assert len([one for one in found.checks if one.stage == "artifact"]) == 5  # logits, keys, and values


def test_a_registration_of_the_user_stays() -> None:
    kind = transformers.DynamicCache
    executorch = pytest.importorskip("transformers.integrations.executorch")
    executorch.register_dynamic_cache_export_support()
    try:
        node = _pytree.SUPPORTED_NODES[kind]
        assert "layers" in torchstone.export(made(gpt2), (tokens(2, 5),))(tokens(2, 5)).past_key_values
        assert _pytree.SUPPORTED_NODES[kind] is node
    finally:
        _pytree._deregister_pytree_node(kind)
