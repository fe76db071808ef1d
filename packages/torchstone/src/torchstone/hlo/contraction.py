"""Matrix products, convolutions, FFTs and the two factorizations in StableHLO."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy

from ..dtypes import COMPLEX64, FLOAT32, DType
from ..errors import LoweringBug
from ._mlir import ir, stablehlo
from .dimensions import Dim, assume_same, plain
from .sizes import require_addressable
from .value import Value, scope, tensor_type

_NARROWED = frozenset({FLOAT32, COMPLEX64})
"""Dtypes that accelerators multiply in TensorFloat-32 or bfloat16 unless a program asks for more."""


def _precision(dtype: DType, *, full: bool = False) -> Any:
    """Return the precision attribute of a product of two ``dtype`` operands; None leaves it to the device.

    With ``full``, a product of any module has the precision of its operands.
    """
    if dtype not in _NARROWED or not (full or scope.module.full_precision):
        return None
    highest: Any = stablehlo.PrecisionAttr.get("HIGHEST")
    return ir.ArrayAttr.get([highest, highest])


def dot_general(
    a: Value,
    b: Value,
    *,
    contract: tuple[Sequence[int], Sequence[int]],
    batch: tuple[Sequence[int], Sequence[int]] = ((), ()),
    accumulate: DType | None = None,
    full_precision: bool = False,
) -> Value:
    """Sum products over the ``contract`` axes, elementwise over the ``batch`` axes.

    The result has the batch axes, then the free axes of ``a``, then those of ``b``. Its dtype is
    ``accumulate`` (default: the operands'). ``full_precision`` is for sums that are not matrix products in
    PyTorch, so that ``torch.set_float32_matmul_precision`` does not apply to them.
    """
    if a.dtype is not b.dtype:
        raise LoweringBug(f"dot operands differ in dtype: {a!r}, {b!r}")
    pairs = zip((*batch[0], *contract[0]), (*batch[1], *contract[1]), strict=True)
    if not all(assume_same(a.shape[one], b.shape[other]) for one, other in pairs):
        raise LoweringBug(f"dot operands differ in size: {a!r}, {b!r} along {batch} and {contract}")
    dtype = accumulate or a.dtype
    numbers = stablehlo.DotDimensionNumbers.get(
        lhs_batching_dimensions=list(batch[0]),
        rhs_batching_dimensions=list(batch[1]),
        lhs_contracting_dimensions=list(contract[0]),
        rhs_contracting_dimensions=list(contract[1]),
    )
    shape: list[Dim] = [a.shape[axis] for axis in batch[0]]
    shape += [dim for axis, dim in enumerate(a.shape) if axis not in {*batch[0], *contract[0]}]
    shape += [dim for axis, dim in enumerate(b.shape) if axis not in {*batch[1], *contract[1]}]
    kind = tensor_type(shape, dtype)
    precision = _precision(a.dtype, full=full_precision)
    result = stablehlo.dot_general(kind, a.ir, b.ir, numbers, precision_config=precision)
    return Value(result, shape, dtype)


def dot(a: Value, b: Value, accumulate: DType | None = None) -> Value:
    """Matrix product of ``(…batch, m, k)`` and ``(…batch, k, n)`` with equal batch axes."""
    lead = list(range(a.rank - 2))
    return dot_general(a, b, contract=([a.rank - 1], [b.rank - 2]), batch=(lead, lead), accumulate=accumulate)


def convolution(
    x: Value,
    kernel: Value,
    *,
    strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    groups: int = 1,
    batch_groups: int = 1,
    layout: tuple[str, str, str] = ("bf", "oi", "bf"),
    accumulate: DType | None = None,
) -> Value:
    """Convolution (cross-correlation) over any number of spatial axes.

    ``layout`` names the axes of input, kernel and output: two letters and
    spatial digits, ``"bf01"``; without digits the spatial axes come last.
    """
    rank = x.rank - 2
    digits = "".join(map(str, range(rank)))
    lhs, rhs, out = (text if len(text) > 2 or not rank else text + digits for text in layout)
    dilate_x = list(lhs_dilation or [1] * rank)
    dilate_k = list(rhs_dilation or [1] * rank)
    dtype = accumulate or x.dtype
    sizes: dict[str, Dim] = {
        "b": x.shape[_place(lhs, "b")] // batch_groups,
        "f": kernel.shape[_place(rhs, "o")],
    }
    padded: list[Dim] = [x.shape[_place(lhs, "b")], x.shape[_place(lhs, "f")]]
    for axis, digit in enumerate(digits):
        size = x.shape[_place(lhs, digit)]
        base = (size - 1) * dilate_x[axis] + 1 if dilate_x[axis] != 1 else size
        reach = (kernel.shape[_place(rhs, digit)] - 1) * dilate_k[axis] + 1
        sizes[digit] = (base + sum(padding[axis]) - reach) // strides[axis] + 1
        padded.append(base + sum(padding[axis]))
    require_addressable(plain(padded), dtype)
    shape = plain([sizes[letter] for letter in out])
    numbers = stablehlo.ConvDimensionNumbers.get(
        input_batch_dimension=_place(lhs, "b"),
        input_feature_dimension=_place(lhs, "f"),
        input_spatial_dimensions=[_place(lhs, d) for d in digits],
        kernel_input_feature_dimension=_place(rhs, "i"),
        kernel_output_feature_dimension=_place(rhs, "o"),
        kernel_spatial_dimensions=[_place(rhs, d) for d in digits],
        output_batch_dimension=_place(out, "b"),
        output_feature_dimension=_place(out, "f"),
        output_spatial_dimensions=[_place(out, d) for d in digits],
    )
    result = stablehlo.convolution(
        tensor_type(shape, dtype),
        x.ir,
        kernel.ir,
        numbers,
        groups,
        batch_groups,
        window_strides=list(strides),
        padding=ir.DenseIntElementsAttr.get(numpy.asarray(padding, dtype=numpy.int64).reshape(rank, 2)),
        lhs_dilation=dilate_x,
        rhs_dilation=dilate_k,
        window_reversal=[False] * rank,
        precision_config=_precision(x.dtype),
    )
    return Value(result, shape, dtype)


def _place(layout: str, letter: str) -> int:
    return layout.index(letter)


def fft(x: Value, kind: Literal["FFT", "IFFT", "RFFT", "IRFFT"], lengths: Sequence[int]) -> Value:
    """(Inverse) Fourier transform over the last ``len(lengths)`` axes (1 to 3).

    ``RFFT`` takes real input, ``IRFFT`` returns real output of ``lengths``;
    inverse transforms divide by the number of elements.
    """
    shape = list(x.shape)
    dtype = x.dtype
    if kind == "RFFT":
        shape[-1], dtype = lengths[-1] // 2 + 1, x.dtype.complex
    elif kind == "IRFFT":
        if not assume_same(shape[-1], lengths[-1] // 2 + 1):
            raise LoweringBug(f"{x!r} is not half a spectrum of {lengths[-1]} numbers")
        shape[-1], dtype = lengths[-1], x.dtype.real
    operation = stablehlo.FftOp(
        x.ir, stablehlo.FftTypeAttr.get(kind), list(lengths), results=[tensor_type(shape, dtype)]
    )
    return Value(operation.result, shape, dtype)


def cholesky(x: Value, *, lower: bool = True) -> Value:
    """Return the Cholesky factor of ``(…, n, n)``; its other triangle is unspecified."""
    return Value(stablehlo.cholesky(x.ir, lower=ir.BoolAttr.get(lower)), x.shape, x.dtype)


def triangular_solve(
    a: Value,
    b: Value,
    *,
    left: bool,
    lower: bool,
    unit: bool,
    transpose: Literal["NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"] = "NO_TRANSPOSE",
) -> Value:
    """Solve ``op(a) · x = b`` (``left``) or ``x · op(a) = b`` for a triangular ``a``."""
    result = stablehlo.triangular_solve(a.ir, b.ir, left, lower, unit, stablehlo.TransposeAttr.get(transpose))
    return Value(result, b.shape, b.dtype)
