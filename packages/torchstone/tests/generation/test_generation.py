"""Generators of tiny language models against ``model.generate``: the same tokens, and the right distribution."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

import torchstone

transformers = pytest.importorskip("transformers", reason="the extra torchstone[models] is not installed")

VOCABULARY = 61
MAX_LENGTH = 48
_SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": MAX_LENGTH,
    "initializer_range": 0.4,  # far from uniform, so that many tokens come up
    "bos_token_id": None,
    "eos_token_id": None,
}
_GROUPED = {**_SIZES, "intermediate_size": 64, "num_key_value_heads": 2}
MODELS: Mapping[str, Mapping[str, Any]] = {
    "GPT2LMHeadModel": _SIZES,
    "LlamaForCausalLM": _GROUPED,
    "MistralForCausalLM": {**_GROUPED, "sliding_window": 6},
    "Qwen2ForCausalLM": _GROUPED,
}


def make(name: str) -> Any:
    torch.manual_seed(0)
    model = getattr(transformers, name)
    return model(model.config_class(**MODELS[name])).eval()


class Exported:
    """A model, and its generator for two rows, as it is after saving and loading."""

    def __init__(self, name: str, folder: Path) -> None:
        self.model = make(name)
        generator = torchstone.export_generation(
            self.model, max_length=MAX_LENGTH, batch_size=2, buckets=(8, 16), tokens_per_call=4
        )
        self.path = generator.save(folder / f"{name}.stone")
        self.generator = torchstone.load_generation(self.path)


@pytest.fixture(scope="module", params=MODELS)
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    return Exported(request.param, tmp_path_factory.mktemp("generators"))


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    return Exported("GPT2LMHeadModel", tmp_path_factory.mktemp("gpt2"))


def tokens(rows: int, length: int) -> torch.Tensor:
    return torch.randint(0, VOCABULARY, (rows, length))


def eager(
    model: Any, prompt: torch.Tensor, mask: torch.Tensor | None = None, **options: Any
) -> numpy.ndarray:
    mask = torch.ones_like(prompt) if mask is None else mask
    return model.generate(prompt, attention_mask=mask, do_sample=False, **options).numpy()


@pytest.mark.parametrize("length", [1, 7, 8, 9, 16])
def test_greedy_tokens_are_those_of_the_model(exported: Exported, length: int) -> None:
    prompt = tokens(2, length)
    found = exported.generator.generate(prompt, max_new_tokens=MAX_LENGTH - length)
    assert found.dtype == numpy.int64
    numpy.testing.assert_array_equal(found, eager(exported.model, prompt, max_new_tokens=MAX_LENGTH - length))
    assert len(set(found[0, length:].tolist())) > 4


def test_prompts_of_different_lengths(exported: Exported) -> None:
    prompt, mask = tokens(2, 11), torch.ones(2, 11, dtype=torch.int64)
    mask[0, :6] = 0
    found = exported.generator.generate(prompt, mask, max_new_tokens=20)
    numpy.testing.assert_array_equal(found, eager(exported.model, prompt, mask, max_new_tokens=20))
    alone = exported.generator.generate(prompt[:1, 6:], max_new_tokens=20)
    numpy.testing.assert_array_equal(found[:1, 11:], alone[:, 5:])


def test_rows_end_with_an_end_token(exported: Exported) -> None:
    prompt = tokens(2, 5)
    free = eager(exported.model, prompt, max_new_tokens=30)[:, 5:]
    late = {int(token): int((free[1] == token).argmax()) for token in set(free[1].tolist()) - set(free[0])}
    end = max(late, key=lambda token: late[token])
    other = int(free[0, 2])
    for ends in ([end, other], [other], [end]):
        options = {"eos_token_id": ends, "pad_token_id": 3, "max_new_tokens": 30}
        found = exported.generator.generate(prompt, **options)
        numpy.testing.assert_array_equal(found, eager(exported.model, prompt, **options))
    numpy.testing.assert_array_equal(
        exported.generator.generate(prompt, max_new_tokens=30, eos_token_id=[end, other]),
        eager(exported.model, prompt, max_new_tokens=30, eos_token_id=[end, other], pad_token_id=end),
    )


def test_a_saved_generator_runs_without_torch(exported: Exported) -> None:
    prompt = tokens(2, 9)
    code = f"""
import sys
sys.modules.update(torch=None, transformers=None)
import torchstone
generator = torchstone.load_generation({str(exported.path)!r})
prompt = {prompt.tolist()}
print(generator.generate(prompt, max_new_tokens=10).tolist())
print(generator.generate(prompt, max_new_tokens=10, do_sample=True, seed=5).tolist())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    greedy, sampled = done.stdout.splitlines()
    assert greedy == str(eager(exported.model, prompt, max_new_tokens=10).tolist())
    same = exported.generator.generate(prompt, max_new_tokens=10, do_sample=True, seed=5)
    assert sampled == str(same.tolist())
