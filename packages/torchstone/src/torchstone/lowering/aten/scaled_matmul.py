"""Matrix products of low-precision operands: int8, and float8 or int8 with scales.

Products are computed and accumulated in int32 or float32; scales and bias are
applied there, and the result is rounded once.

Not here: products in one dtype (``matmul``).
"""

from __future__ import annotations

from collections.abc import Sequence

from ... import hlo
from ...dtypes import (
    BFLOAT16,
    FLOAT8,
    FLOAT8_E4M3FN,
    FLOAT8_E5M2,
    FLOAT8_E8M0FNU,
    FLOAT16,
    FLOAT32,
    INT8,
    INT32,
    UINT8,
    DType,
)
from ...hlo import Value
from ...torch_internals.operators import namespace
from ..common import cast
from ..registry import Spec, lowers

aten = namespace("aten")

_SCALED = FLOAT8 - {FLOAT8_E8M0FNU}
_GAPS = {FLOAT8_E8M0FNU: "PyTorch's own shape function rejects it: it is a format for scales"}


@lowers(aten._int_mm.default, dtypes=frozenset({INT8, UINT8}))
def _int_mm(self: Value, mat2: Value) -> Value:
    """``self @ mat2`` of int8 (``self`` may be uint8) with an int32 result."""
    if self.dtype is mat2.dtype:
        return hlo.dot(self, mat2, accumulate=INT32)
    return hlo.dot(hlo.convert(self, INT32), hlo.convert(mat2, INT32))


@lowers(
    aten._scaled_mm.default,
    dtypes=_SCALED,
    gaps=_GAPS,
    ignores=("use_fast_accum",),  # an option that is never used
)
def _scaled_mm(
    self: Value,
    mat2: Value,
    scale_a: Value,
    scale_b: Value,
    bias: Value | None = None,
    scale_result: Value | None = None,
    out_dtype: DType | None = None,
    *,
    out: Spec,
) -> Value:
    """``(self · scale_a) @ (mat2 · scale_b) + bias``.

    The result is divided by ``scale_result`` where PyTorch's CPU kernels do so: if the
    call names an ``out_dtype`` of float8_e4m3fn or float8_e5m2.
    """
    total = _scaled(self, mat2, scale_a, scale_b, bias)
    if scale_result is not None and out_dtype in (FLOAT8_E4M3FN, FLOAT8_E5M2):
        total = total / _spread(scale_result, out.shape)
    return cast(total, out.dtype)


@lowers(
    aten._scaled_mm_v2.default,
    dtypes=_SCALED,
    gaps=_GAPS,
    # The shapes of the scales imply the recipes. PyTorch's CPU kernels never swizzle and contract inner axes.
    ignores=(
        "recipe_a",
        "recipe_b",
        "swizzle_a",
        "swizzle_b",
        "out_dtype",
        "contraction_dim",
        "use_fast_accum",
    ),
)
def _scaled_mm_v2(
    self: Value,
    mat2: Value,
    scale_a: Sequence[Value],
    scale_b: Sequence[Value],
    bias: Value | None,
    out: Spec,
) -> Value:
    """``(self · scale_a) @ (mat2 · scale_b) + bias`` with one scale, or one per row and column."""
    return cast(_scaled(self, mat2, scale_a[0], scale_b[0], bias), out.dtype)


def _scaled(a: Value, b: Value, scale_a: Value, scale_b: Value, bias: Value | None) -> Value:
    total = hlo.dot(hlo.convert(a, FLOAT32), hlo.convert(b, FLOAT32))
    total = total * _spread(scale_a, total.shape) * _spread(scale_b, total.shape)
    if bias is not None:
        total = total + hlo.broadcast_to(hlo.convert(bias, FLOAT32), total.shape)
    return total


def _spread(scale: Value, shape: hlo.Shape) -> Value:
    """Broadcast one scale of any shape, or one per row or column, to ``shape``."""
    if scale.rank != 2:
        scale = hlo.reshape(scale, ())
    return hlo.broadcast_to(hlo.convert(scale, FLOAT32), shape)


@lowers(aten._weight_int8pack_mm.default, dtypes=frozenset({FLOAT16, BFLOAT16, FLOAT32}))
def _weight_int8pack_mm(self: Value, mat2: Value, scales: Value) -> Value:
    """``self @ mat2.T`` where each int8 row of ``mat2`` has its own scale."""
    total = hlo.dot_general(hlo.convert(self, FLOAT32), hlo.convert(mat2, FLOAT32), contract=([1], [1]))
    return hlo.convert(total * hlo.broadcast_to(hlo.convert(scales, FLOAT32), total.shape), self.dtype)
