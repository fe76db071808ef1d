"""Samples of ``lowering.aten.comparison``."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from torchstone.torch_internals.operators import namespace

from . import Make, Sample, samples
from .elementwise import edge_pairs, pairs, singles, with_number

aten = namespace("aten")


@samples(
    *(getattr(aten, name).Tensor for name in ("eq", "ne", "lt", "le", "gt", "ge")),
    aten.logical_and.default,
    aten.logical_or.default,
    aten.logical_xor.default,
    gradient=False,
)
def _comparisons(make: Make) -> Iterator[Sample]:
    yield from edge_pairs(make)
    yield Sample((make.tensor([0, 1, 2]), make.tensor([2, 1, 0])), note="some equal")
    yield from pairs(make)


@samples(*(getattr(aten, name).Scalar for name in ("eq", "ne", "lt", "le", "gt", "ge")), gradient=False)
def _comparisons_with_number(make: Make) -> Iterator[Sample]:
    yield Sample((make.edges(), 1), note="special values")
    yield from with_number(make, 2, 0.5, True)
    yield Sample((make.edges(), float("inf")), note="infinity")


@samples(
    aten.isnan.default,
    aten.isinf.default,
    aten.isposinf.default,
    aten.isneginf.default,
    aten.signbit.default,
    aten.logical_not.default,
    gradient=False,
)
def _classes(make: Make) -> Iterator[Sample]:
    yield from singles(make)


@samples(aten.where.self)
def _where(make: Make) -> Iterator[Sample]:
    condition = make.bools(2, 3).to(make.dtype)
    for dtype in (torch.float64, torch.int32, torch.complex64, torch.bool, torch.float16, torch.uint16):
        yield Sample((condition, make(2, 3, dtype=dtype), make(3, dtype=dtype)), note="broadcast")
    yield Sample(
        (condition, make(2, 3, dtype=torch.int64), make(dtype=torch.float32)), note="mixed dtypes, 0-d"
    )
    yield Sample(
        (condition[0, 0], make(2, 1, dtype=torch.float64), make(3, dtype=torch.float64)), note="0-d mask"
    )
    yield Sample((condition[:, :0], make(dtype=torch.float64), make(dtype=torch.float64)), note="empty")
    yield Sample(
        (condition.t(), make(3, 2, dtype=torch.float64), make(1, dtype=torch.float64)), note="strided"
    )


@samples(aten.clamp.default)
def _clamp(make: Make) -> Iterator[Sample]:
    yield Sample((make(2, 3), 1, 4))
    yield Sample((make.edges(), 1, 2), note="special values")
    yield Sample((make(2, 3), 3), note="from below only")
    yield Sample((make(2, 3), None, 3.5), note="from above only")
    yield Sample((make(), 5, 2), note="0-d, bounds crossed")
    yield Sample((make(0, 2), 0, 1), note="empty")
    yield Sample((make(3), float("nan"), 1), note="NaN bound")
    yield Sample((make.transposed(2, 3), 0.5, float("inf")), note="non-contiguous")


@samples(aten.clamp.Tensor)
def _clamp_tensors(make: Make) -> Iterator[Sample]:
    yield Sample((make(2, 3), make(3), make(2, 1)), note="broadcast")
    backward = torch.stack(make.edges().unbind()[::-1])
    yield Sample((make.edges(), backward, make.edges()), note="special values")
    yield Sample((make(2, 3), make(3)), note="from below only")
    yield Sample((make(2, 3), None, make()), note="from above only, 0-d")
    yield Sample((make(0, 3), make(3), make(1, 3)), note="empty")
    yield Sample((make(3), make(3, dtype=torch.float64)), note="mixed dtypes")


@samples(aten.clamp_min.default, aten.clamp_max.default)
def _bounds(make: Make) -> Iterator[Sample]:
    yield from with_number(make, 2, 0.5)
    yield Sample((make(3), float("nan")), note="NaN bound")


@samples(aten.clamp_min.Tensor, aten.clamp_max.Tensor)
def _tensor_bounds(make: Make) -> Iterator[Sample]:
    yield from edge_pairs(make)
    yield from pairs(make)
