"""Samples of ``lowering.aten.creation``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from torchstone.torch_internals.operators import namespace

from . import Make, Sample, samples

aten = namespace("aten")
prims = torch.ops.prims

_SHAPES = ([2, 3], [], [0, 3], [1])


def _number(make: Make) -> Any:
    return 1.5 - 2j if make.is_complex else 2.5 if make.is_float else True if make.dtype is torch.bool else 3


def _prims_options(make: Make) -> dict[str, Any]:
    return {"dtype": make.dtype, "device": torch.device("cpu"), "requires_grad": False}


@samples(aten.full.default, gradient=False)
def _full(make: Make) -> Iterator[Sample]:
    for shape in _SHAPES:
        yield Sample((shape, _number(make)), {"dtype": make.dtype})
    if make.dtype is torch.float32:
        for number in (2.5, 3, True, 1j):
            yield Sample(([2], number), note="dtype of the number")
    yield Sample(([2], -0.0), {"dtype": make.dtype})
    yield Sample(([2], 1000), {"dtype": make.dtype}, note="large")


@samples(prims.full.default, gradient=False)
def _prims_full(make: Make) -> Iterator[Sample]:
    for shape in _SHAPES:
        yield Sample((shape, _number(make)), _prims_options(make))


@samples(aten.new_full.default, gradient=False)
def _new_full(make: Make) -> Iterator[Sample]:
    for shape in _SHAPES:
        yield Sample((make(2), shape, _number(make)))
    yield Sample((make(2), [2], 1), {"dtype": torch.int32})


@samples(aten.full_like.default, aten.fill.Scalar, gradient=False)
def _full_like(make: Make) -> Iterator[Sample]:
    for shape in _SHAPES:
        yield Sample((make(*shape), _number(make)))
    yield Sample((make.transposed(2, 3), _number(make)), note="non-contiguous")


@samples(aten.fill.Tensor)
def _fill(make: Make) -> Iterator[Sample]:
    for shape in _SHAPES:
        yield Sample((make(*shape), make()))
    yield Sample((make(2), make(dtype=torch.int64)), note="mixed dtypes")


@samples(aten.scalar_tensor.default, gradient=False)
def _scalar_tensor(make: Make) -> Iterator[Sample]:
    yield Sample((_number(make),), {"dtype": make.dtype})
    yield Sample((1,), {"dtype": make.dtype})
    if make.dtype is torch.float32:
        yield Sample((2.5,), note="default dtype")


@samples(prims.scalar_tensor.default, gradient=False)
def _prims_scalar_tensor(make: Make) -> Iterator[Sample]:
    yield Sample((_number(make),), {"dtype": make.dtype, "device": torch.device("cpu")})


@samples(aten.zeros.default, aten.ones.default, gradient=False)
def _constants(make: Make) -> Iterator[Sample]:
    for shape in _SHAPES:
        yield Sample((shape,), {"dtype": make.dtype})
    if make.dtype is torch.float32:
        yield Sample(([2],), note="default dtype")


@samples(aten._efficientzerotensor.default, gradient=False)
def _zero_tensor(make: Make) -> Iterator[Sample]:
    for shape in _SHAPES:
        yield Sample((shape,), {"dtype": make.dtype})


@samples(aten.zeros_like.default, aten.ones_like.default, gradient=False)
def _constants_like(make: Make) -> Iterator[Sample]:
    for shape in _SHAPES:
        yield Sample((make(*shape),))
    yield Sample((make.transposed(2, 3),), {"dtype": torch.float64}, "non-contiguous")


@samples(aten.zero.default, gradient=False)
def _zero(make: Make) -> Iterator[Sample]:
    for shape in _SHAPES:
        yield Sample((make(*shape),))


@samples(aten.new_zeros.default, aten.new_ones.default, gradient=False)
def _new_constants(make: Make) -> Iterator[Sample]:
    for shape in _SHAPES:
        yield Sample((make(2), shape))
    yield Sample((make(2), [2]), {"dtype": torch.float64})


@samples(aten._new_zeros_with_same_feature_meta.default, gradient=False)
def _zero_tangents(make: Make) -> Iterator[Sample]:
    for shape in _SHAPES:
        yield Sample((make(2), make(*shape)))
    yield Sample((make(4, 2), make(3)), {"self_num_batch_dims": 1})


@samples(aten.empty.memory_format, gradient=False, random=True)
def _empty(make: Make) -> Iterator[Sample]:
    for shape in _SHAPES:
        yield Sample((shape,), {"dtype": make.dtype})


@samples(aten.empty_like.default, gradient=False, random=True)
def _empty_like(make: Make) -> Iterator[Sample]:
    for shape in _SHAPES:
        yield Sample((make(*shape),))
    yield Sample((make(2),), {"dtype": torch.float64})


@samples(aten.empty_permuted.default, gradient=False, random=True)
def _empty_permuted(make: Make) -> Iterator[Sample]:
    yield Sample(([2, 3], [1, 0]), {"dtype": make.dtype})
    yield Sample(([], []), {"dtype": make.dtype})


@samples(prims.empty_permuted.default, gradient=False, random=True)
def _prims_empty_permuted(make: Make) -> Iterator[Sample]:
    yield Sample(([2, 3], [1, 0]), _prims_options(make))


@samples(aten.empty_strided.default, gradient=False, random=True)
def _empty_strided(make: Make) -> Iterator[Sample]:
    yield Sample(([2, 3], [1, 2]), {"dtype": make.dtype})
    yield Sample(([], []), {"dtype": make.dtype})


@samples(prims.empty_strided.default, gradient=False, random=True)
def _prims_empty_strided(make: Make) -> Iterator[Sample]:
    yield Sample(([2, 3], [1, 2]), _prims_options(make))


@samples(aten.new_empty.default, gradient=False, random=True)
def _new_empty(make: Make) -> Iterator[Sample]:
    for shape in _SHAPES:
        yield Sample((make(2), shape))


@samples(aten.new_empty_strided.default, gradient=False, random=True)
def _new_empty_strided(make: Make) -> Iterator[Sample]:
    yield Sample((make(2), [2, 3], [1, 2]))
    yield Sample((make(2), [2, 3], [1, 2]), {"dtype": torch.float64})


@samples(aten.arange.default, gradient=False)
def _arange(make: Make) -> Iterator[Sample]:
    for end in (5, 0, 1, 2.5):
        yield Sample((end,), {"dtype": make.dtype})
    if make.dtype is torch.float32:
        yield Sample((4,), note="dtype of the number")


@samples(aten.arange.start, gradient=False)
def _arange_start(make: Make) -> Iterator[Sample]:
    yield Sample((2, 6), {"dtype": make.dtype})
    yield Sample((-1.5, 3), {"dtype": make.dtype})
    yield Sample((3, 3), {"dtype": make.dtype}, "empty")
    if make.dtype is torch.float32:
        yield Sample((1.0, 4), note="dtype of the numbers")


@samples(aten.arange.start_step, gradient=False)
def _arange_start_step(make: Make) -> Iterator[Sample]:
    yield Sample((1, 9, 2), {"dtype": make.dtype})
    yield (
        Sample((0, 1, 0.1), {"dtype": make.dtype})
        if make.is_float
        else Sample((5, 0, -1), {"dtype": make.dtype})
    )
    yield Sample((9, -3, -4), {"dtype": make.dtype})
    yield Sample((0, 0, 3), {"dtype": make.dtype}, "empty")
    if make.dtype is torch.float32:
        yield Sample((0.25, 3, 0.7), note="dtype of the numbers")
    if make.dtype is torch.int64:
        yield Sample((2**40, 2**40 + 5, 2), note="large")


@samples(prims.iota.default, gradient=False)
def _iota(make: Make) -> Iterator[Sample]:
    for length, start, step in ((5, 0, 1), (4, 3, 2), (0, 1, 1), (3, 9, -4)):
        yield Sample((length,), {"start": start, "step": step, **_prims_options(make)})


def _spacings(make: Make, *rest: Any) -> Iterator[Sample]:
    spans = [(0, 3, 4), (1, 3, 7), (5, 2, 6), (3, 9, 1), (3, 9, 0), (0, 1, 5)]
    if make.dtype.is_signed:
        spans += [(5, -2, 6), (-2, -1, 2)]
    for start, end, steps in spans:
        yield Sample((start, end, steps, *rest), {"dtype": make.dtype})


@samples(aten.linspace.default, gradient=False)
def _linspace(make: Make) -> Iterator[Sample]:
    yield from _spacings(make)
    yield Sample((-1.5, 2.25, 11), {"dtype": make.dtype})
    if make.dtype is torch.float32:
        yield Sample((0, 1, 5), note="default dtype")
    if make.dtype.is_floating_point and make.dtype.itemsize > 1:
        for end, steps in ((torch.inf, 1), (torch.nan, 1), (torch.inf, 3)):
            yield Sample((0.5, end, steps), {"dtype": make.dtype}, "an end that is not finite")


@samples(aten.logspace.default, gradient=False)
def _logspace(make: Make) -> Iterator[Sample]:
    yield from _spacings(make, 2.0)
    yield Sample((0, 2, 3), {"dtype": make.dtype}, "powers of ten")
    yield Sample((1.7, 9.0, 1), {"dtype": make.dtype}, "one number, rounded once")
    yield Sample((-1.5, 1.25, 11), {"dtype": make.dtype})


def _between_tensors(make: Make, which: str) -> Iterator[Sample]:
    start, end = torch.tensor(0).to(make.dtype), torch.tensor(3).to(make.dtype)
    for steps in (4, 1, 6):
        ends = (start if which[0] == "T" else 1, end if which[1] == "T" else 2)
        yield Sample((*ends, steps), {"dtype": make.dtype})


@samples(aten.linspace.Tensor_Tensor, gradient=False)
def _between_two(make: Make) -> Iterator[Sample]:
    yield Sample((torch.tensor(50), torch.tensor(1), 50), {"dtype": make.dtype}, "whole steps")
    yield from _between_tensors(make, "TT")


@samples(aten.logspace.Tensor_Tensor, gradient=False)
def _powers_between_two(make: Make) -> Iterator[Sample]:
    yield from _between_tensors(make, "TT")


@samples(aten.linspace.Tensor_Scalar, aten.logspace.Tensor_Scalar, gradient=False)
def _from_tensor(make: Make) -> Iterator[Sample]:
    yield from _between_tensors(make, "TS")


@samples(aten.linspace.Scalar_Tensor, aten.logspace.Scalar_Tensor, gradient=False)
def _to_tensor(make: Make) -> Iterator[Sample]:
    yield from _between_tensors(make, "ST")


@samples(aten.eye.default, gradient=False)
def _eye(make: Make) -> Iterator[Sample]:
    for n in (3, 0, 1):
        yield Sample((n,), {"dtype": make.dtype})


@samples(aten.eye.m, gradient=False)
def _eye_m(make: Make) -> Iterator[Sample]:
    for n, m in ((2, 4), (3, 1), (0, 2)):
        yield Sample((n, m), {"dtype": make.dtype})
