"""Samples of ``lowering.aten.distance``."""

from __future__ import annotations

from collections.abc import Iterator

from torchstone.torch_internals.operators import namespace

from . import Make, Sample, samples

aten = namespace("aten")
ORDERS = (2.0, 1.0, 0.0, float("inf"), 3.0, 1.5, 0.5)


@samples(aten._cdist_forward.default)
def _cdist(make: Make) -> Iterator[Sample]:
    for p in ORDERS:
        yield Sample((make(4, 3), make(5, 3), p, None))
    yield Sample((make(2, 4, 3), make(2, 1, 3), 2.0, 2), note="batch")
    yield Sample((make.transposed(4, 3), make(5, 3), 1.0, None), note="non-contiguous")
    yield Sample((make(4, 0), make(5, 0), 2.0, None), note="rows without elements")
    yield Sample((make(0, 3), make(5, 3), 2.0, None), note="empty")


@samples(aten._cdist_backward.default, gradient=False)
def _cdist_backward(make: Make) -> Iterator[Sample]:
    if not make.is_float:
        return
    for p in ORDERS:
        x, y = make(4, 3), make(5, 3)
        y[1] = x[2]
        yield Sample((make(4, 5), x, y, p, aten._cdist_forward(x, y, p, None)), note="two equal rows")
    x, y = make(4, 3), make(0, 5, 3)
    yield Sample((make(0, 4, 5), x, y, 2.0, make(0, 4, 5)), note="empty, not broadcast")


@samples(
    aten._pdist_forward.default,
    gradient=False,
    reason="eager's gradient of no pairs crashes the process; the backward overload has samples",
)
def _pdist(make: Make) -> Iterator[Sample]:
    for p in ORDERS:
        yield Sample((make(5, 3), p))
    yield Sample((make(1, 1),), note="one row")
    yield Sample((make(0, 3),), note="empty")
    yield Sample((make.transposed(4, 3), 1.0), note="non-contiguous")


@samples(aten._pdist_backward.default, gradient=False)
def _pdist_backward(make: Make) -> Iterator[Sample]:
    if not make.is_float:
        return
    for p in ORDERS:
        x = make(4, 3)
        x[1] = x[3]
        yield Sample((make(6), x, p, aten._pdist_forward(x, p)), note="two equal rows")
    yield Sample((make(0), make(1, 3), 2.0, make(0)), note="one row")
