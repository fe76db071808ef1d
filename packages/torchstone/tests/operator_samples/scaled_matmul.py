"""Samples of ``lowering.aten.scaled_matmul``."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from torchstone.torch_internals.operators import namespace

from . import Make, Sample, samples

aten = namespace("aten")


@samples(aten._int_mm.default, gradient=False)
def _int_mm(make: Make) -> Iterator[Sample]:
    yield Sample((make(3, 8), make(8, 4, dtype=torch.int8)))
    yield Sample((make.transposed(3, 8), make.transposed(8, 4, dtype=torch.int8)), note="non-contiguous")
    yield Sample((make(0, 8), make(8, 4, dtype=torch.int8)), note="no rows")
    largest = make(2, 300).fill_(127)
    yield Sample((largest, torch.full((300, 2), -128, dtype=torch.int8)), note="beyond 16 bits")


def _operands(
    make: Make, rows: int = 4, inner: int = 16, columns: int = 16
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows times columns, in the memory order that the kernels ask for."""
    return make(rows, inner, low=-2, high=2), make(columns, inner, low=-2, high=2).t()


@samples(aten._scaled_mm.default, gradient=False)
def _scaled_mm(make: Make) -> Iterator[Sample]:
    half, quarter = torch.tensor(0.5), torch.tensor(0.25)
    yield Sample((*_operands(make), half, quarter), note="result as the operands")
    yield Sample(
        (*_operands(make), half, quarter, torch.randn(16)), {"out_dtype": torch.float32}, note="bias"
    )
    yield Sample(
        (*_operands(make), torch.rand(4, 1), torch.rand(1, 16)), {"out_dtype": torch.bfloat16}, note="rows"
    )
    options = {"scale_result": torch.tensor(2.0), "out_dtype": make.dtype}
    yield Sample((*_operands(make), half, quarter), options, note="scaled result")
    yield Sample(
        (*_operands(make), half, quarter), {"scale_result": torch.tensor(2.0)}, note="no dtype asked for"
    )
    yield Sample(
        (*_operands(make), half, quarter),
        {"scale_result": torch.tensor(2.0), "out_dtype": torch.float32},
        note="wide result is not scaled",
    )
    yield Sample((*_operands(make, rows=1), half.reshape(1), quarter.reshape(1, 1)), note="one row")


@samples(aten._scaled_mm_v2.default, gradient=False)
def _scaled_mm_v2(make: Make) -> Iterator[Sample]:
    one, none = torch.tensor([0.5]), None
    tensorwise, rowwise = ([0], [0]), ([1], [0])
    yield Sample((*_operands(make), [one], *tensorwise, [one / 2], *tensorwise, none, torch.float32))
    rows, columns = torch.rand(4, 1), torch.rand(1, 16)
    yield Sample((*_operands(make), [rows], *rowwise, [columns], *rowwise, none, torch.bfloat16), note="rows")
    bias = torch.randn(16)
    yield Sample(
        (*_operands(make), [one], *tensorwise, [one / 2], *tensorwise, bias, torch.float32), note="bias"
    )
    yield Sample(
        (*_operands(make), [one], *tensorwise, [one / 2], *tensorwise, none, none), note="float8 result"
    )


@samples(aten._weight_int8pack_mm.default, gradient=False)
def _weight_int8pack_mm(make: Make) -> Iterator[Sample]:
    for rows, inner, columns in ((4, 16, 32), (1, 32, 16), (5, 48, 64)):
        weight = make(columns, inner, dtype=torch.int8, low=-128, high=128)
        scales = (0.5 ** make.indices(columns, high=4)).to(make.dtype)
        yield Sample(
            (make(rows, inner).round(), weight, scales), note="whole numbers: every order of sums is exact"
        )
