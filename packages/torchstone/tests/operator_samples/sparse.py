"""Samples of ``lowering.aten.sparse``: the CPU kernels are PyTorch's own sparse operators."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from . import Make, Sample, samples

own = torch.ops.torchstone
SIZE = [4, 6]
DISTINCT = torch.tensor([[0, 1, 1, 3], [2, 0, 5, 1]])
REPEATED = torch.tensor([[3, 0, 1, 0, 3], [1, 2, 0, 2, 5]])
PADDED = torch.tensor([[0, 1, 3, 4, 4], [2, 5, 0, 6, 6]])
"""Indices whose last two entries are padding."""
NONE = torch.zeros(2, 0, dtype=torch.int64)


def sparse(make: Make, *shape: int) -> torch.Tensor:
    """Return a tensor that is mostly zero."""
    return make(*shape) * (torch.rand(shape) < 0.4).to(make.dtype)


def padded_values(make: Make, *dense: int) -> torch.Tensor:
    values = make(5, *dense)
    values[3:] = 0
    return values


@samples(own.to_sparse_coo.default)
def _to_coo(make: Make) -> Iterator[Sample]:
    yield Sample((sparse(make, *SIZE), 2, 24))
    yield Sample((sparse(make, *SIZE), 2, 5), note="cut at the bound", gradient=False)
    yield Sample((sparse(make, 3, 4, 2), 1, 3), note="dense dimensions")
    yield Sample((make(2, 3), 2, 6), note="nothing is zero")
    yield Sample((torch.zeros(2, 3, dtype=make.dtype), 2, 6), note="all is zero", gradient=False)
    yield Sample((make.transposed(4, 3), 2, 12), note="transposed")


@samples(own.sparse_to_dense.default)
def _to_dense(make: Make) -> Iterator[Sample]:
    if make.dtype != torch.int64:
        return
    for dtype in (torch.float32, torch.float64, torch.int64, torch.complex64):
        values = make(5, dtype=dtype)
        yield Sample((REPEATED, values, SIZE), note=f"equal indices, {dtype}")
    yield Sample((DISTINCT, make(4, 2, 3, dtype=torch.float64), SIZE), note="dense dimensions")
    yield Sample((NONE, make(0, dtype=torch.float32), SIZE), note="no entries")


@samples(own.sparse_take.default)
def _take(make: Make) -> Iterator[Sample]:
    yield Sample((make(*SIZE), DISTINCT))
    yield Sample((make(*SIZE), PADDED), note="padded")
    yield Sample((make(*SIZE, 2), REPEATED), note="dense dimensions")
    yield Sample((make(*SIZE), NONE), note="no entries")


@samples(own.sparse_coalesce.default)
def _coalesce(make: Make) -> Iterator[Sample]:
    if make.dtype != torch.int64:
        return
    for dtype in (torch.float32, torch.float64, torch.int32, torch.complex64):
        yield Sample((REPEATED, make(5, dtype=dtype), SIZE), note=f"equal indices, {dtype}")
    yield Sample((DISTINCT.flip(1), make(4, 3, dtype=torch.float64), SIZE), note="unsorted")
    yield Sample((torch.ones(2, 3, dtype=torch.int64), make(3, dtype=torch.float32), SIZE), note="one place")


@samples(own.sparse_sum.default)
def _sum(make: Make) -> Iterator[Sample]:
    if make.dtype != torch.int64:
        return
    for dim in (0, 1):
        yield Sample((REPEATED, make(5, dtype=torch.float64), SIZE, [dim]), note=f"dimension {dim}")
    cube = torch.randint(0, 3, (3, 7))
    yield Sample((cube, make(7, 2, dtype=torch.float32), [3, 3, 3], [0, 2]), note="two dimensions")


@samples(own.sparse_mm.default)
def _mm(make: Make) -> Iterator[Sample]:
    if make.dtype != torch.int64:
        return
    for dtype in (torch.float64, torch.float32, torch.complex64):
        yield Sample((REPEATED, make(5, dtype=dtype), SIZE, make(6, 3, dtype=dtype)), note=f"{dtype}")
    values = padded_values(lambda *shape: make(*shape, dtype=torch.float64))  # type: ignore[arg-type]
    infinite = torch.full((6, 2), float("inf"), dtype=torch.float64)
    yield Sample((PADDED, values, SIZE, infinite), note="padding times infinity", gradient=False)
    empty = make(0, dtype=torch.float32)
    yield Sample((NONE, empty, SIZE, make(6, 2, dtype=torch.float32)), note="no entries")


@samples(own.sparse_sampled_mm.default)
def _sampled(make: Make) -> Iterator[Sample]:
    if make.dtype != torch.int64:
        return
    for dtype in (torch.float64, torch.float32, torch.complex64):
        yield Sample((REPEATED, make(4, 3, dtype=dtype), make(3, 6, dtype=dtype)), note=f"{dtype}")
    pair = make(4, 2, dtype=torch.float64), make(2, 6, dtype=torch.float64)
    yield Sample((PADDED, *pair), note="padded")


@samples(own.sparse_addmm.default)
def _addmm(make: Make) -> Iterator[Sample]:
    for options in ({}, {"beta": 0.5, "alpha": -2.0} if make.is_float else {"beta": 2, "alpha": -3}):
        yield Sample((make(4, 3), REPEATED, make(5), SIZE, make(6, 3)), options)
    if make.dtype.is_complex:
        factors = {"beta": 0.5 - 2j, "alpha": 1 + 0.5j}
        yield Sample((make(4, 3), DISTINCT, make(4), SIZE, make(6, 3)), factors, note="complex factors")


@samples(own.sparse_sampled_addmm.default)
def _sampled_addmm(make: Make) -> Iterator[Sample]:
    yield Sample((make(5), REPEATED, make(4, 3), make(3, 6)))
    if make.is_float:
        yield Sample((make(4), DISTINCT, make(4, 3), make(3, 6)), {"beta": 0.5, "alpha": -2.0})
    if make.dtype.is_complex:
        factors = {"beta": 0.5 - 2j, "alpha": 1 + 0.5j}
        yield Sample((make(4), DISTINCT, make(4, 3), make(3, 6)), factors, note="complex factors")


@samples(own.sparse_softmax.default)
def _softmax(make: Make) -> Iterator[Sample]:
    if make.dtype != torch.int64:
        return
    for log in (False, True):
        for dim in (0, 1):
            yield Sample((DISTINCT, make(4, dtype=torch.float64), SIZE, dim, log), note=f"{dim}, {log}")
    yield Sample(
        (PADDED, torch.tensor([1.0, 2.0, 3.0, 0.0, 0.0]), SIZE, 1, False), note="padded", gradient=False
    )
    yield Sample((DISTINCT, make(4, 2, 3, dtype=torch.float64), SIZE, 1, True), note="dense dimensions")
    line = torch.tensor([[0, 2, 3]])
    yield Sample((line, make(3, dtype=torch.float32), [5], 0, False), note="one dimension")


@samples(own.sparse_softmax_backward.default, gradient=False)
def _softmax_backward(make: Make) -> Iterator[Sample]:
    for log in (False, True):
        output = make(4, low=-2, high=0)
        yield Sample((make(4), output, DISTINCT, SIZE, 1, log), note=f"log {log}")
    yield Sample((padded_values(make), padded_values(make), PADDED, SIZE, 0, False), note="padded")
    rows = padded_values(make, 2), padded_values(make, 2)
    yield Sample((*rows, PADDED, SIZE, 1, True), note="dense dimensions")


def halved(make: Make, rows: int, columns: int) -> torch.Tensor:
    """Return a matrix with at most two nonzeros in each group of four."""
    mask = torch.tensor([1, 0, 0, 1, 0, 1, 1, 0, 0, 0, 1, 0]).repeat(columns)[:columns]
    return make(rows, columns) * mask.to(make.dtype)


@samples(own.to_sparse_semi_structured.default)
def _to_semi_structured(make: Make) -> Iterator[Sample]:
    yield Sample((halved(make, 3, 12),), gradient=False)
    yield Sample((torch.zeros(2, 4, dtype=make.dtype),), note="all is zero", gradient=False)
    yield Sample((make(2, 8, nonzero=True),), note="nothing is zero: the first two", gradient=False)


@samples(own.semi_structured_to_dense.default)
def _from_semi_structured(make: Make) -> Iterator[Sample]:
    for sample in _to_semi_structured(make):
        yield Sample(tuple(own.to_sparse_semi_structured(*sample.args)), note=sample.note, gradient=False)
