"""Samples of ``lowering.aten.conversion``."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from torchstone.torch_internals.operators import namespace

from . import Make, Sample, defaults, samples
from .elementwise import singles

aten = namespace("aten")
prims = torch.ops.prims

_TARGETS = (
    torch.float32,
    torch.int64,
    torch.bool,
    torch.bfloat16,
    torch.uint8,
    torch.float64,
    torch.float16,
    torch.complex64,
    torch.complex128,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.uint16,
    torch.uint32,
    torch.uint64,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2fnuz,
)


@samples(*defaults(aten, "clone contiguous lift lift_fresh lift_fresh_copy resolve_conj resolve_neg"))
@samples(*defaults(prims, "clone view_of"))
def _same(make: Make) -> Iterator[Sample]:
    yield from singles(make)


@samples(prims.device_put.default, gradient=False)
def _device_put(make: Make) -> Iterator[Sample]:
    for sample in singles(make):
        yield Sample((*sample.args, torch.device("cpu")), note=sample.note)


@samples(aten._to_copy.default)
def _to_copy(make: Make) -> Iterator[Sample]:
    several = torch.cat([make(6), make(6, low=0, high=2), make.tensor([0, 1, 2, 5])])
    for dtype in _TARGETS:
        yield Sample((several,), {"dtype": dtype}, f"to {dtype}")
    for sample in singles(make):
        yield Sample(sample.args, {"dtype": torch.float32}, sample.note)
    yield Sample((make(2, 3),), note="same dtype")
    yield from _edges_that_fit(make)


def _edges_that_fit(make: Make) -> Iterator[Sample]:
    """Special values, where C++ defines what they become."""
    for dtype in _TARGETS:
        whole = not dtype.is_floating_point and not dtype.is_complex and dtype is not torch.bool
        if not whole or not (make.is_float or make.is_complex):
            yield Sample((make.edges(),), {"dtype": dtype}, f"special values to {dtype}")
    if make.is_float:
        wrapping = make.tensor([-1.5, 200.0, -200.0, 300.0, 40000.0])
        for dtype in (torch.uint8, torch.int8, torch.uint16, torch.int16, torch.uint32, torch.uint64):
            yield Sample((wrapping,), {"dtype": dtype}, f"out of range of {dtype}")
    if make.dtype is torch.float64:
        yield Sample((torch.tensor([1 + 2**-8 + 2**-30, 1 + 2**-11 + 2**-40]),), {"dtype": torch.bfloat16})


@samples(prims.convert_element_type.default)
def _convert(make: Make) -> Iterator[Sample]:
    for dtype in _TARGETS:
        yield Sample((make(2, 3), dtype), note=f"to {dtype}")


@samples(aten.copy.default)
def _copy(make: Make) -> Iterator[Sample]:
    yield Sample((make(2, 3), make(2, 3)))
    yield Sample((make(2, 3), make(3, dtype=torch.float64)), note="broadcast, another dtype")
    yield Sample((make(), make(dtype=torch.int32)), note="0-d")
    yield Sample((make(0, 3), make(1, 3)), note="empty")
    yield Sample((make.transposed(2, 3), make(2, 1, dtype=torch.int64)), note="non-contiguous")


@samples(aten.view.dtype, gradient=False)
def _view(make: Make) -> Iterator[Sample]:
    for dtype in (torch.uint8, torch.int32, torch.float16, torch.float32, torch.complex64, *_TARGETS):
        if torch.bool not in (dtype, make.dtype):
            yield Sample((make(2, 16), dtype), note=f"as {dtype}")
    if make.dtype is torch.bool:
        yield Sample((make(2, 16), torch.uint8))
        yield Sample((make(2, 16), torch.int32))
        yield Sample((make(2, 16), torch.complex64))
    if make.dtype in (torch.uint8, torch.int8):
        yield Sample((make(2, 3, low=0, high=2), torch.bool))
    yield Sample((make(), make.dtype), note="0-d")
    yield Sample((make(0, 16), torch.int16), note="empty")
    yield Sample((make(3, 5)[:, ::2], make.dtype), note="non-contiguous")
    yield Sample((make.edges(), torch.uint8), note="special values")
