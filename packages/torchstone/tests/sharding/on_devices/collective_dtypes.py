"""Each collective in each kind of dtype, compared with the same computation on lists of the ranks' values."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed._functional_collectives as funcol

from rank_programs import columns, of_groups, rows, run, values, world

FOLDS: dict[str, Callable[[Any, Any], Any]] = {
    "sum": torch.add,
    "product": torch.mul,
    "min": torch.minimum,
    "max": torch.maximum,
    "band": torch.bitwise_and,
    "bor": torch.bitwise_or,
    "bxor": torch.bitwise_xor,
}
BITWISE = ("band", "bor", "bxor")
INTEGERS = (torch.uint8, torch.int8, torch.int32, torch.int64)
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
WHOLE_BYTES = (torch.bool, torch.uint64, torch.float8_e4m3fn, torch.complex128, *FLOATS)


def folds(dtype: torch.dtype) -> list[str]:
    """Return the reductions that exist for a dtype."""
    if dtype.is_complex:
        return ["sum", "product"]
    return [name for name in FOLDS if name not in BITWISE or not dtype.is_floating_point]


@pytest.mark.parametrize("dtype", [torch.bool, *INTEGERS, *FLOATS, torch.complex64], ids=str)
def test_reductions(dtype: torch.dtype) -> None:
    xs, names = values(dtype, 4, 4, 3), folds(dtype)
    with world(2, 2) as mesh:
        results = run(
            lambda x: (
                [funcol.all_reduce(x, name, mesh["b"]) for name in names],
                [funcol.reduce_scatter_tensor(x, name, 0, mesh["b"]) for name in names],
            ),
            xs,
        )
    for (place, group), (reduced, scattered) in zip(of_groups(rows(4, 2), xs), results, strict=True):
        for name, whole, part in zip(names, reduced, scattered, strict=True):
            if dtype is torch.bool and name in ("sum", "product"):
                name = {"sum": "bor", "product": "band"}[name]
            expected = functools.reduce(FOLDS[name], group)
            torch.testing.assert_close(whole, expected)
            torch.testing.assert_close(part, expected.chunk(2)[place])


def test_mean() -> None:
    xs = values(torch.float32, 4, 4)
    with world(4) as mesh:
        results = run(
            lambda x: (funcol.all_reduce(x, "avg", mesh), funcol.reduce_scatter_tensor(x, "avg", 0, mesh)), xs
        )
    for rank, (whole, part) in enumerate(results):
        torch.testing.assert_close(whole, sum(xs) / 4)
        torch.testing.assert_close(part, (sum(xs) / 4)[rank : rank + 1])


@pytest.mark.parametrize("dtype", WHOLE_BYTES, ids=str)
def test_moves(dtype: torch.dtype) -> None:
    """Collectives that only move data keep every bit."""
    xs = values(dtype, 4, 4, 2)
    with world(2, 2) as mesh:
        results = run(
            lambda x: (
                funcol.all_gather_tensor(x, 0, mesh["a"]),
                funcol.all_to_all_single(x, None, None, mesh["a"]),
                funcol.broadcast(x, 1, mesh["a"]),
            ),
            xs,
        )
    for (place, group), found in zip(of_groups(columns(4, 2), xs), results, strict=True):
        expected = (
            torch.cat(group),
            torch.cat([one.chunk(2)[place] for one in group]),
            group[1],
        )
        for one, want in zip(found, expected, strict=True):
            assert torch.equal(one.view(torch.uint8), want.view(torch.uint8))
