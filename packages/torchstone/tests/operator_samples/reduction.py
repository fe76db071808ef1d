"""Samples of ``lowering.aten.reduction``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from torchstone.torch_internals.operators import namespace

from . import Make, Sample, samples

aten = namespace("aten")
INFINITY = float("inf")


@samples(aten.any.default, aten.all.default, aten._is_any_true.default, aten._is_all_true.default)
def _whole(make: Make) -> Iterator[Sample]:
    yield Sample((make(3, 4, low=-2, high=3),))
    yield Sample((make(0, 3),), note="empty")
    yield Sample((make(),), note="0-d")
    yield Sample((make.transposed(3, 5, low=-2, high=3),), note="non-contiguous")
    yield Sample((make(1, 1),), note="size 1")
    yield Sample((make.edges(),), note="special values")
    yield Sample((torch.zeros(2, 2).to(make.dtype),), note="zeros")


@samples(aten.sum.default, aten.mean.default)
def _whole_dtype(make: Make) -> Iterator[Sample]:
    yield from _whole(make)
    yield Sample((make(3, 4, low=0, high=3),), {"dtype": torch.float64})


@samples(aten.prod.default)
def _whole_product(make: Make) -> Iterator[Sample]:
    for sample in _whole_dtype(make):
        # For NaN and two zeros, eager's gradient is 0 by a shortcut, but NaN by the formula that it traces.
        yield replace(sample, gradient=sample.gradient and sample.note != "special values")


@samples(aten.sum.dim_IntList, aten.mean.dim)
def _dims(make: Make) -> Iterator[Sample]:
    yield Sample((make(3, 4, 2), [1]))
    yield Sample((make(3, 4, 2), [0, -1], True), note="keepdim")
    yield Sample((make(2, 0, 3), [1]), note="empty axis")
    yield Sample((make.transposed(3, 4), None), {"dtype": torch.float32}, note="all, dtype")
    yield Sample((make(), [0]), note="0-d")
    yield Sample((make(0, 3), [1]), note="empty result")
    yield Sample((make(2, 3), [], True), note="no dims: all")
    yield Sample((make(1, 3), [0]), note="size 1")
    yield Sample((make.edges(), [0]), note="special values")


@samples(aten.prod.dim_int)
def _prod_dim(make: Make) -> Iterator[Sample]:
    yield Sample((make(3, 4, low=-2, high=3), 1))
    yield Sample((make(3, 4, 2, low=-2, high=3), -2, True), note="keepdim")
    yield Sample((make(2, 0), 1), note="empty axis")
    yield Sample((make(), 0), {"dtype": torch.float32}, note="0-d")
    yield Sample((make.transposed(3, 4, low=-2, high=3), 0), note="non-contiguous")
    yield Sample((make.tensor([[0, 2, 3], [0, 0, 1], [1, 2, 0]]), 1), note="zeros")


@samples(aten.any.dim, aten.all.dim)
def _logical_dim(make: Make) -> Iterator[Sample]:
    mixed = make.tensor([[1, 0, 1], [0, 0, 0], [1, 1, 1]])
    yield Sample((mixed, 1))
    yield Sample((mixed, -2, True), note="keepdim")
    yield Sample((make(2, 0), 1), note="empty axis")
    yield Sample((make(), 0), note="0-d")
    yield Sample((mixed.t(), 0), note="non-contiguous")
    yield Sample((make.edges(), 0), note="special values")


@samples(aten.any.dims, aten.all.dims)
def _logical_dims(make: Make) -> Iterator[Sample]:
    mixed = make.tensor([[[1, 0], [0, 0]], [[1, 1], [1, 0]]])
    yield Sample((mixed, [0, 2]))
    yield Sample((mixed, None, True), note="keepdim")
    yield Sample((mixed, []), note="no dims: nothing is reduced")
    yield Sample((make(2, 0, 1), [1, 2]), note="empty axis")
    yield Sample((make(), [0]), note="0-d")


@samples(aten.var.correction, aten.std.correction, aten.var_mean.correction, aten.std_mean.correction)
def _moments(make: Make) -> Iterator[Sample]:
    yield Sample((make(3, 4, 2), [1]))
    yield Sample((make(3, 4), [0, -1]), {"correction": 0, "keepdim": True})
    yield Sample((make.transposed(5, 3), None), {"correction": 2.5}, note="all, fraction")
    yield Sample((make(4, 1), [1]), note="fewer elements than the correction")
    yield Sample((make(0, 3), [0]), note="empty axis")
    yield Sample((make(),), {"correction": 0}, note="0-d")
    yield Sample((make(6, low=1000, high=1001), [0]), note="large mean")
    yield Sample((make(0, 3), [1]), note="empty result")


@samples(aten.logsumexp.default)
def _logsumexp(make: Make) -> Iterator[Sample]:
    yield Sample((make(3, 4), [1]))
    yield Sample((make(3, 4, 2), [0, 2], True), note="keepdim")
    yield Sample((make(2, 0), [1]), note="empty axis")
    yield Sample((make(), [0]), note="0-d")
    yield Sample((make.transposed(3, 4), [0]), note="non-contiguous")
    if make.is_float:
        huge = [
            [1e4, 1e4, 0.0],
            [INFINITY, 1.0, 2.0],
            [-INFINITY, -INFINITY, -INFINITY],
            [float("nan"), 0.0, 1.0],
        ]
        yield Sample((make.tensor(huge), [1]), note="huge and infinite")


@samples(aten.linalg_vector_norm.default)
def _vector_norm(make: Make) -> Iterator[Sample]:
    yield Sample((make(3, 4),))
    yield Sample((make(3, 4), INFINITY, [1], True))
    yield Sample((make.transposed(3, 4), 1, [0]), note="non-contiguous")
    yield Sample((make(3, 4), 3.5, [-1]))
    yield Sample((make(3, 4), -INFINITY))
    yield Sample((make.tensor([[0, 1, 2], [0, 0, 3]]), 0, [1]), note="order 0 counts")
    yield Sample((make(3, 4, nonzero=True), -2, [0]))
    yield Sample((make(2, 0), 2, [1]), note="empty axis")
    yield Sample((make(),), note="0-d")
    yield Sample((make(3),), {"dtype": torch.complex128 if make.is_complex else torch.float64})


@samples(aten.hash_tensor.default, gradient=False)
def _hash(make: Make) -> Iterator[Sample]:
    options: dict[str, Any] = {"keepdim": True}
    yield Sample((make(3, 4),))
    yield Sample((make(3, 4), [1]), options)
    yield Sample((make(0, 3),), note="empty")
    yield Sample((make(),), note="0-d")
    yield Sample((make.edges(),), note="special values")
