"""Products with the experts of a mixture: operators of transformers in other terms, alone and in models."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

import torchstone
from torchstone.compiler.operators.experts import expert_decompositions

transformers = pytest.importorskip("transformers", reason="the extra torchstone[models] is not installed")
pytest.importorskip("transformers.integrations.moe")


def product() -> Any:
    return torch.ops.transformers.grouped_mm_fallback.default


def gradients() -> Any:
    return torch.ops.transformers.grouped_mm_fallback_backward.default


def mixtral() -> Any:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 4}
    config = transformers.MixtralConfig(vocab_size=99, num_key_value_heads=2, num_local_experts=4, **sizes)
    assert config._experts_implementation in (None, "grouped_mm")
    return transformers.MixtralForCausalLM(config)


def tokens(*shape: int) -> torch.Tensor:
    return torch.randint(0, 99, shape, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("ends_early", [False, True])
def test_they_compute_what_the_operators_do(dtype: torch.dtype, ends_early: bool) -> None:
    """The groups have all sizes, also zero, and some rows belong to no group."""
    rules, generator = expert_decompositions(), torch.Generator().manual_seed(0)
    for groups, rows in itertools.product((1, 2, 5), (0, 1, 7, 24)):
        for _ in range(4):
            offs = torch.randint(0, rows + 1, (groups,), generator=generator).sort().values.int()
            if not ends_early:
                offs[-1] = rows
            x, grad = (torch.randn(rows, size, generator=generator).to(dtype) for size in (5, 4))
            weight = torch.randn(groups, 5, 4, generator=generator).to(dtype)
            torch.testing.assert_close(rules[product()](x, weight, offs), product()(x, weight, offs))
            ours, theirs = rules[gradients()](x, weight, offs, grad), gradients()(x, weight, offs, grad)
            torch.testing.assert_close(ours, tuple(theirs))


def test_the_weight_of_another_group_reaches_no_row() -> None:
    x, weight = torch.ones(3, 2), torch.ones(3, 2, 2)
    weight[1] = torch.nan  # group 1 has no rows
    found = expert_decompositions()[product()](x, weight, torch.tensor([2, 2, 3], dtype=torch.int32))
    assert found.tolist() == [[2.0, 2.0]] * 3


def test_a_mixture_trains_in_one_graph_without_fallback() -> None:
    model, prompt = mixtral(), tokens(2, 7)
    fast = torch.compile(model, backend="torchstone", fullgraph=True, options={"fallback": False})
    found: list[list[torch.Tensor | None]] = []
    for called in (model, fast):
        model.zero_grad()
        called(prompt, labels=prompt, use_cache=False).loss.backward()
        found.append([one.grad for one in model.parameters()])
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-6)


@pytest.mark.conformance
def test_a_mixture_exports_with_any_batch() -> None:
    model, batch = mixtral().eval(), torch.export.Dim("batch", min=1, max=64)
    program = torchstone.export(
        model,
        (tokens(2, 5),),
        {"use_cache": False},
        dynamic_shapes={"input_ids": {0: batch}, "use_cache": None},
    )
    for rows in (1, 2, 9):
        prompt = tokens(rows, 5)
        with torch.no_grad():
            expected = model(prompt, use_cache=False).logits
        torch.testing.assert_close(program(prompt, use_cache=False).logits, expected, rtol=1e-4, atol=1e-5)
