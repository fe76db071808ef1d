"""Properties of attention that samples do not show: it stays whole, its dropout, loops over many scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

import torchstone
from torchstone.lowering import attention
from torchstone.runtime.pjrt import PjrtEngine


def test_attention_is_one_composite() -> None:
    q = torch.randn(1, 2, 3, 4)
    program = torchstone.export(scaled_dot_product_attention, (q, q, q))
    assert '"torchstone.scaled_dot_product_attention"' in program.mlir_text()


def test_dropout_in_attention_drops_weights_and_scales_the_rest() -> None:
    def weights(q: torch.Tensor, k: torch.Tensor, dropout: float) -> torch.Tensor:
        """Return the attention matrix itself, by attending to unit vectors."""
        return scaled_dot_product_attention(q, k, torch.eye(16).expand(2, 4, 16, 16), dropout_p=dropout)

    torch.manual_seed(0)
    q, k = torch.randn(2, 4, 16, 8), torch.randn(2, 4, 16, 8)
    program = torchstone.export(lambda q, k: weights(q, k, 0.25), (q, k))
    dropped, plain = program(q, k), weights(q, k, 0.0)
    kept = dropped != 0
    torch.testing.assert_close(dropped[kept], plain[kept] / 0.75)
    assert 0.70 < kept.float().mean() < 0.80  # 2048 draws: the standard deviation is 0.01
    assert not torch.equal(program(q, k), dropped)


# Loops over many scores ------------------------------------------------------------------

SHAPES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "plain": ((2, 4, 37, 8), (2, 4, 29, 8), {}),
    "one matrix": ((37, 8), (29, 8), {}),
    "fewer rows than a block": ((2, 5, 8), (2, 29, 8), {}),
    "causal": ((2, 3, 37, 8), (2, 3, 37, 8), {"is_causal": True}),
    "causal with fewer keys": ((2, 3, 37, 8), (2, 3, 11, 8), {"is_causal": True}),
    "causal with more keys": ((2, 3, 21, 8), (2, 3, 40, 8), {"is_causal": True}),
    "grouped": ((2, 6, 37, 8), (2, 2, 29, 8), {"enable_gqa": True}),
    "mask of all": ((2, 3, 37, 8), (2, 3, 29, 8), {"attn_mask": (2, 3, 37, 29)}),
    "mask of heads": ((2, 3, 37, 8), (2, 3, 29, 8), {"attn_mask": (3, 1, 29)}),
    "mask of a batch": ((2, 3, 37, 8), (2, 3, 29, 8), {"attn_mask": (2, 1, 37, 29)}),
    "mask of queries": ((2, 3, 37, 8), (2, 3, 29, 8), {"attn_mask": (37, 1)}),
}


flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
flash_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default


def inputs(query: tuple[int, ...], key: tuple[int, ...], dtype: torch.dtype) -> list[torch.Tensor]:
    return [torch.randn(shape, dtype=dtype) for shape in (query, key, key)]


@pytest.fixture
def in_small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("_WHOLE", 0), ("_FEW", 0), ("_ROWS", 8)):
        monkeypatch.setattr(attention, name, value)


def options_of(shapes: str, mask: Callable[..., torch.Tensor]) -> dict[str, Any]:
    options = dict(SHAPES[shapes][2])
    if shape := options.get("attn_mask"):
        options["attn_mask"] = mask(shape)
    return options


def with_gradients(
    attend: Callable[..., torch.Tensor], given: Sequence[torch.Tensor]
) -> tuple[torch.Tensor, ...]:
    given = [one.clone().requires_grad_() for one in given]
    found = attend(*given)
    return (found, *torch.autograd.grad(found.float().square().sum(), given))


def compiled(attend: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    torch.compiler.reset()  # otherwise it is not compiled again
    return torch.compile(lambda *given: attend(*given), backend="torchstone")


@pytest.mark.kept("causal", "grouped")
@pytest.mark.usefixtures("in_small_blocks")
@pytest.mark.parametrize("shapes", SHAPES)
def test_attention_in_blocks(shapes: str) -> None:
    given = inputs(*SHAPES[shapes][:2], torch.float32)
    attend = partial(
        scaled_dot_product_attention, **options_of(shapes, lambda shape: torch.rand(shape) > 0.3)
    )
    torch.testing.assert_close(torchstone.export(attend, tuple(given))(*given), attend(*given))
    torch.testing.assert_close(with_gradients(compiled(attend), given), with_gradients(attend, given))


@pytest.mark.conformance
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shapes", SHAPES)
def test_blocks_of_other_dtypes(shapes: str, dtype: torch.dtype, request: pytest.FixtureRequest) -> None:
    """Compare with scores that are computed all at once, which rounds results as often."""
    given = inputs(*SHAPES[shapes][:2], dtype)
    attend = partial(scaled_dot_product_attention, **options_of(shapes, partial(torch.randn, dtype=dtype)))
    at_once = with_gradients(compiled(attend), given)
    request.getfixturevalue("in_small_blocks")
    torch.testing.assert_close(with_gradients(compiled(attend), given), at_once)


@pytest.mark.usefixtures("in_small_blocks")
def test_rows_without_keys_are_zero_in_blocks() -> None:
    given = inputs((2, 37, 8), (2, 29, 8), torch.float32)
    mask = torch.ones(37, 29, dtype=torch.bool)
    mask[[0, 20, 36]] = False
    found = torchstone.export(partial(scaled_dot_product_attention, attn_mask=mask), tuple(given))(*given)
    torch.testing.assert_close(found, scaled_dot_product_attention(*given, attn_mask=mask))
    assert not found[:, [0, 20, 36]].any()


def test_memory_grows_with_the_length_and_not_with_its_square() -> None:
    def step(grad: torch.Tensor, *given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        results = flash(*given)
        return results[0], *flash_backward(grad, *given, *results, 0.0, False)

    def memory(length: int) -> int:
        program = torchstone.export(step, tuple(torch.randn(1, 4, length, 16) for _ in range(4)))
        size: int = PjrtEngine().compile(program.mlir_text()).compiled.memory["intermediate"]
        return size

    # The scores of one head take 64 and 256 MiB.
    assert memory(8192) < 2.2 * memory(4096) < 160 * 2**20
