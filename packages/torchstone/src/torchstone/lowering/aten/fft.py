"""Fourier transforms: the operators behind all functions of ``torch.fft``.

StableHLO transforms the last one to three axes and divides inverse transforms
by the number of elements. This module moves the axes there, transforms further
axes in turn, and applies PyTorch's norm. Transformed axes have static sizes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy

from ... import hlo
from ...dtypes import COMPLEX, COPYABLE, FLOAT32, FLOAT64, FLOATING
from ...hlo import Value
from ...torch_internals.operators import namespace
from ..common import axis_of, is_empty
from ..composites import Expand, composed_whole, expanded
from ..promotion import opmath
from ..registry import Spec, lowers

aten = namespace("aten")

Kind = Literal["FFT", "IFFT", "RFFT", "IRFFT"]


def transform(x: Value, kind: Kind, dims: Sequence[int], last: int) -> Value:
    """Apply ``kind`` to one to three ``dims``; ``last`` is the real signal's size along the last of them."""
    axes = [dim % x.rank for dim in dims]
    rest = [axis for axis in range(x.rank) if axis not in axes]
    order = [*rest, *axes]
    lengths = [*(x.shape[axis] for axis in axes[:-1]), last]
    result = hlo.fft(hlo.transpose(x, order), kind, lengths)
    return hlo.transpose(result, [order.index(axis) for axis in range(x.rank)])


def complex_transform(x: Value, dims: Sequence[int], *, forward: bool) -> Value:
    """A complex transform over any number of ``dims``."""
    for start in range(0, len(dims), 3):
        some = dims[start : start + 3]
        x = transform(x, "FFT" if forward else "IFFT", some, x.shape[some[-1]])
    return x


def normalized(result: Value, count: int, normalization: int, *, forward: bool) -> Value:
    """Apply ATen's norm (0: none, 1: by root, 2: by ``count``) to a transform of ``count`` elements."""
    wanted = (1.0, 1.0 / math.sqrt(count), 1.0 / count)[normalization]
    factor = wanted if forward else wanted * count
    if factor == 1.0:
        return result
    if result.dtype.is_complex:
        return hlo.complex_(hlo.real(result) * factor, hlo.imag(result) * factor)
    return result * factor


def _count(x: Value, dims: Sequence[int]) -> int:
    return math.prod(x.shape[dim] for dim in dims)


def _empty(out: Spec) -> Value | None:
    """The result if there is no signal to transform."""
    return hlo.full(out.shape, 0, out.dtype) if is_empty(out.shape) else None


@lowers(aten._fft_c2c.default, dtypes=COMPLEX)
def _fft_c2c(self: Value, dim: list[int], normalization: int, forward: bool, *, out: Spec) -> Value:
    """Complex Fourier transform, or its inverse if not ``forward``."""
    if not dim:
        return self
    result = _empty(out)
    if result is None:
        result = complex_transform(self, dim, forward=forward)
    return normalized(result, _count(self, dim), normalization, forward=forward)


@lowers(aten._fft_r2c.default, dtypes=frozenset({FLOAT32, FLOAT64}))
def _fft_r2c(self: Value, dim: list[int], normalization: int, onesided: bool, *, out: Spec) -> Value:
    """Transform a real signal; ``onesided`` keeps the first half of the last dimension."""
    result = _empty(out)
    if result is None and onesided:
        half = transform(self, "RFFT", dim[-1:], self.shape[dim[-1]])
        result = complex_transform(half, dim[:-1], forward=True)
    elif result is None:
        result = complex_transform(hlo.convert(self, out.dtype), dim, forward=True)
    return normalized(result, _count(self, dim), normalization, forward=True)


@lowers(aten._fft_c2r.default, dtypes=COMPLEX)
def _fft_c2r(self: Value, dim: list[int], normalization: int, last_dim_size: int, *, out: Spec) -> Value:
    """Transform half a spectrum back to a real signal of ``last_dim_size``."""
    result = _empty(out)
    if result is None:
        spectrum = complex_transform(self, dim[:-1], forward=False)
        result = transform(spectrum, "IRFFT", dim[-1:], last_dim_size)
    count = _count(self, dim[:-1]) * last_dim_size
    return normalized(result, count, normalization, forward=False)


# The dtype of the result already reflects ``dtype``.
@lowers(aten.fft_fftfreq.default, dtypes=FLOATING, ignores=("dtype",))
def fftfreq(n: int, d: float = 1.0, *, out: Spec) -> Value:
    """The frequencies of a complex transform of ``n`` samples with spacing ``d``; negative ones come last."""

    def kernel() -> Value:
        index = hlo.iota((n,), 0, opmath(out.dtype))
        signed = hlo.select(index < (n + 1) // 2, index, index - n)
        return hlo.convert(signed * _step(n, d), out.dtype)

    return composed_whole("fftfreq", [], kernel, out, {"n": n, "d": float(d)})


@lowers(aten.fft_rfftfreq.default, dtypes=FLOATING, ignores=("dtype",))
def rfftfreq(n: int, d: float = 1.0, *, out: Spec) -> Value:
    """The nonnegative frequencies of a real signal's transform; for ``n=-1``, as in PyTorch, a zero."""

    def kernel() -> Value:
        return hlo.convert(hlo.iota(out.shape, 0, opmath(out.dtype)) * _step(n, d), out.dtype)

    return composed_whole("rfftfreq", [], kernel, out, {"n": n, "d": float(d)})


def _step(n: int, d: float) -> float:
    """Return the distance between frequencies by IEEE division: infinite if ``n`` or ``d`` is zero."""
    with numpy.errstate(divide="ignore", over="ignore"):
        return float(numpy.float64(1.0) / numpy.float64(n * d))


@lowers(aten.fft_fftshift.default, dtypes=COPYABLE)
def fftshift(self: Value, dim: list[int] | None, expand: Expand, out: Spec) -> list[Value]:
    """Move the zero frequency to the middle of each axis in ``dim`` (by default, of all axes)."""
    return expanded("fftshift", [self], expand, out, {"axes": _shifted_axes(dim, self.rank)})


@lowers(aten.fft_ifftshift.default, dtypes=COPYABLE)
def ifftshift(self: Value, dim: list[int] | None, expand: Expand, out: Spec) -> list[Value]:
    """Move the zero frequency back to the front."""
    return expanded("ifftshift", [self], expand, out, {"axes": _shifted_axes(dim, self.rank)})


def _shifted_axes(dim: list[int] | None, rank: int) -> list[int]:
    return list(range(rank)) if dim is None else [axis_of(one, rank) for one in dim]
