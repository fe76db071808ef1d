"""Products with packed 4-bit weights, which have a scale and a zero for each group.

The weights are in the order that PyTorch's CPU kernels use on this machine
(``aten/src/ATen/native/cpu/int4mm_kernel.cpp``). A program takes weights that were packed
on a machine with the same vector width. Not here: int8 weights (``scaled_matmul``), the
layouts of GPTQ and AWQ, which models unpack themselves by shifts.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ... import hlo
from ...dtypes import BFLOAT16, EVERY, FLOAT16, FLOAT32, INT32, UINT8
from ...hlo import Value
from ...torch_internals.operators import namespace
from ..common import is_empty
from ..composites import composed
from ..misfits import Arguments, other_shape
from ..registry import Spec, lowers

aten = namespace("aten")

_INPUTS = frozenset({FLOAT32, FLOAT16, BFLOAT16})


@dataclass(frozen=True)
class Layout:
    """The order of packed weights: how many rows form a block, and which two of them share a byte.

    With ``halves``, the rows of the second half of a block are in the upper bits, and those of the
    first half in the lower bits. Without ``halves``, and in the rows after the last whole block,
    adjacent rows share a byte.
    """

    rows: int
    halves: bool

    def attributes(self) -> dict[str, hlo.Attribute]:
        return {"block": self.rows, "halves": self.halves}


_LAYOUTS = {"AVX512": Layout(64, True), "AVX2": Layout(32, True)}
_WITHOUT_VECTORS = Layout(32, False)


def _layout() -> Layout:
    """Return the layout of this machine's kernels."""
    return _LAYOUTS.get(torch.backends.cpu.get_cpu_capability(), _WITHOUT_VECTORS)


def _blocks(rows: int, layout: Layout) -> list[tuple[int, int, Layout]]:
    """Return ``(first row, end, layout)`` of the whole blocks and, if there are any, of the rows after."""
    whole = rows // layout.rows * layout.rows
    parts = [(0, whole, layout), (whole, rows, Layout(rows - whole, False))]
    return [part for part in parts if part[0] < part[1]]


def _packed(codes: Value, layout: Layout) -> Value:
    """Pack ``[rows, columns]`` of 4-bit codes, two rows to a byte, block by block and column by column."""
    total, columns = int(codes.shape[0]), codes.shape[1]
    parts = []
    for first, end, block in _blocks(total, layout):
        count, half = (end - first) // block.rows, block.rows // 2
        shape = (count, 2, half, columns) if block.halves else (count, half, 2, columns)
        split = hlo.reshape(hlo.slice_axis(codes, 0, first, end), shape)
        axis = 1 if block.halves else 2
        low, high = (hlo.squeeze(hlo.slice_axis(split, axis, i, i + 1), [axis]) for i in (0, 1))
        joined = low | hlo.shift_left(high, hlo.full_like(high, 4))
        parts.append(hlo.reshape(hlo.transpose(joined, [0, 2, 1]), (joined.numel,)))
    return hlo.concatenate(parts, 0)


def _unpacked(packed: Value, layout: Layout) -> Value:
    """The inverse of :func:`_packed`: ``[rows, columns]`` from ``[rows, columns / 2]``."""
    total, columns = int(packed.shape[0]), int(packed.shape[1]) * 2
    flat = hlo.reshape(packed, (packed.numel,))
    parts = []
    for first, end, block in _blocks(total, layout):
        mine = hlo.slice_axis(flat, 0, first * columns // 2, end * columns // 2)
        split = hlo.reshape(mine, ((end - first) // block.rows, columns, block.rows // 2, 1))
        low, high = split & 15, hlo.shift_right_logical(split, hlo.full_like(split, 4))
        order = [0, 3, 2, 1] if block.halves else [0, 2, 3, 1]
        both = hlo.transpose(hlo.concatenate([low, high], 3), order)
        parts.append(hlo.reshape(both, (end - first, columns)))
    return hlo.concatenate(parts, 0)


@lowers(
    aten._convert_weight_to_int4pack_for_cpu.default,
    dtypes=frozenset({INT32}),
    gaps=dict.fromkeys(EVERY - {INT32}, "weights are packed from int32"),
    ignores=("innerKTiles",),  # has no effect on the CPU
)
def convert_weight_to_int4pack(self: Value, out: Spec) -> list[Value | None]:
    """Arrange a matrix of 4-bit codes (int32, 0 to 15) in the order of this machine's kernels."""
    layout = _layout()
    if is_empty(out.shape):
        return [hlo.full(out.shape, 0, out.dtype)]

    def kernel(codes: Value) -> Value:
        return _packed(hlo.convert(codes & 15, UINT8), layout)

    return composed("pack_int4", [self], kernel, out, layout.attributes())


def _refuses_other_groups(given: Arguments) -> str | None:
    """Refuse wrong shapes: the kernel reads a scale and a zero for each group without checking."""
    rows, packed = given["mat2"].shape
    wanted = (2 * packed // max(given["qGroupSize"], 1), rows, 2)
    return other_shape("qScaleAndZeros", given["qScaleAndZeros"].shape, wanted)


@lowers(aten._weight_int4pack_mm_for_cpu.default, dtypes=_INPUTS, refuses=_refuses_other_groups)
def weight_int4pack_mm(
    self: Value, mat2: Value, qGroupSize: int, qScaleAndZeros: Value, out: Spec
) -> list[Value | None]:
    """``self @ weight.T`` with packed 4-bit codes; in each group, ``weight = (code - 8) * scale + zero``."""
    layout = _layout()
    if is_empty(out.shape):
        return [hlo.full(out.shape, 0, out.dtype)]

    def kernel(x: Value, packed: Value, parameters: Value) -> Value:
        codes = hlo.convert(_unpacked(packed, layout), x.dtype) - 8.0
        groups = hlo.reshape(codes, (codes.shape[0], parameters.shape[0], qGroupSize))
        scale, zero = (
            hlo.broadcast_in_dim(
                hlo.squeeze(hlo.slice_axis(parameters, 2, i, i + 1), [2]), groups.shape, [1, 0]
            )
            for i in (0, 1)
        )
        return hlo.dot_general(x, hlo.reshape(groups * scale + zero, codes.shape), contract=([1], [1]))

    attributes: dict[str, hlo.Attribute] = {"group_size": qGroupSize, **layout.attributes()}
    return composed("int4_linear", [self, mat2, qScaleAndZeros], kernel, out, attributes)
