"""Sums, products, means, variances, norms and logical reductions.

Not here: minima and maxima with or without positions (``extremum``), scans
(``scan``), sorting and order statistics.

16-bit floats accumulate in float32 and are rounded once at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ... import hlo
from ...dtypes import (
    ALL_INTEGRAL,
    BOOL,
    BOOLEAN,
    COMPLEX,
    EVERY,
    FLOAT64,
    FLOATING,
    STANDARD,
    SUB_BYTE,
    UINT64,
    UNSIGNED,
    DType,
)
from ...hlo import Value
from ...torch_internals.operators import namespace
from ..common import axes_of, by_parts, cast, center, count_of, fill, mean_over, restore, unit_of
from ..factories import finish, lowers_reduction
from ..promotion import opmath
from ..registry import Spec, lowers

aten = namespace("aten")

Dims = int | Sequence[int] | None
SUMMABLE = STANDARD | UNSIGNED
ANY = EVERY - SUB_BYTE
"""Dtypes whose elements can be tested for zero, or summed after conversion to the call's ``dtype``."""


def _sum(x: Value, axes: Sequence[int]) -> Value:
    """Sum over ``dim`` (``None`` or ``[]``: all) in the result's dtype; logical or for bools."""
    return hlo.reduce_or(x, axes) if x.dtype.is_bool else hlo.reduce_sum(x, axes)


def _mean(x: Value, axes: Sequence[int]) -> Value:
    """Mean over ``dim`` (``None`` or ``[]``: all); NaN if there are no elements."""
    return mean_over(x, axes)


def _prod(x: Value, axes: Sequence[int]) -> Value:
    """Product over one axis or all axes, in the result's dtype; logical and for bools."""
    if x.dtype.is_bool:
        return hlo.reduce_and(x, axes)
    return hlo.reduce([x], [1], axes, lambda a, b: a * b)[0]


def _any(x: Value, axes: Sequence[int]) -> Value:
    """True where any element along ``dim`` is nonzero; NaN counts as nonzero; uint8 gives uint8."""
    return hlo.reduce_or(hlo.convert(x, BOOL), axes)


def _all(x: Value, axes: Sequence[int]) -> Value:
    """True where no element along ``dim`` is zero; uint8 gives uint8."""
    return hlo.reduce_and(hlo.convert(x, BOOL), axes)


lowers_reduction(aten.sum.default, aten.sum.dim_IntList, kernel=_sum, dtypes=ANY)
lowers_reduction(aten.mean.default, aten.mean.dim, kernel=_mean, dtypes=ANY)
lowers_reduction(aten.prod.default, aten.prod.dim_int, kernel=_prod, dtypes=ANY)
lowers_reduction(aten.any.default, aten.any.dim, kernel=_any, dtypes=ANY)
lowers_reduction(aten.all.default, aten.all.dim, kernel=_all, dtypes=ANY)
lowers_reduction(aten._is_any_true.default, kernel=_any, dtypes=BOOLEAN)
lowers_reduction(aten._is_all_true.default, kernel=_all, dtypes=BOOLEAN)


@lowers(aten.any.dims, dtypes=ANY, ignores=("keepdim",))
def any_dims(self: Value, dim: Dims = None, *, out: Spec) -> Value:
    """True where any element along ``dim`` is nonzero; ``[]`` reduces nothing."""
    return finish(_any(cast(self, BOOL), [] if dim == [] else axes_of(dim, self.rank)), out)


@lowers(aten.all.dims, dtypes=ANY, ignores=("keepdim",))
def all_dims(self: Value, dim: Dims = None, *, out: Spec) -> Value:
    """True where no element along ``dim`` is zero; ``[]`` reduces nothing."""
    return finish(_all(cast(self, BOOL), [] if dim == [] else axes_of(dim, self.rank)), out)


def _moments(x: Value, axes: Sequence[int], correction: float) -> tuple[Value, Value, Value]:
    """Return the (real) variance over ``axes`` in squares of a unit, that unit, and the mean.

    The variance is the sum of |x − mean|² divided by max(0, n − correction). The unit avoids overflow and
    underflow: in float32, a deviation of 1e20 or 1e-20 is in range, but its square is not. Eager PyTorch
    instead sums in float64 on the CPU.
    """
    unit = unit_of(x, axes)
    inverse = restore(1.0 / unit, x.shape, axes)
    average, _, squares = center(by_parts(lambda part: part * inverse, x), axes)
    divisor = hlo.maximum(count_of(x, axes, squares.dtype) - float(correction), 0.0)
    return squares / fill(divisor, squares.shape), unit, by_parts(lambda part: part * unit, average)


def _variance(x: Value, axes: Sequence[int], correction: float) -> tuple[Value, Value]:
    """Variance and mean."""
    variance, unit, average = _moments(x, axes, correction)
    return variance * unit * unit, average


def _deviation(x: Value, axes: Sequence[int], correction: float) -> tuple[Value, Value]:
    """Standard deviation and mean."""
    variance, unit, average = _moments(x, axes, correction)
    return hlo.sqrt(variance) * unit, average


def _default_correction(correction: Any) -> float:
    return 1.0 if correction is None else float(correction)


@lowers(aten.var.correction, dtypes=FLOATING | COMPLEX, ignores=("keepdim",))
def var(self: Value, dim: Dims = None, *, correction: Any = None, out: Spec) -> Value:
    """Variance over ``dim`` with Bessel's ``correction`` (default 1)."""
    x = hlo.convert(self, opmath(self.dtype))
    return finish(_variance(x, axes_of(dim, x.rank), _default_correction(correction))[0], out)


@lowers(aten.std.correction, dtypes=FLOATING | COMPLEX, ignores=("keepdim",))
def std(self: Value, dim: Dims = None, *, correction: Any = None, out: Spec) -> Value:
    """Standard deviation over ``dim`` with Bessel's ``correction`` (default 1)."""
    x = hlo.convert(self, opmath(self.dtype))
    return finish(_deviation(x, axes_of(dim, x.rank), _default_correction(correction))[0], out)


@lowers(aten.var_mean.correction, dtypes=FLOATING | COMPLEX, ignores=("keepdim",))
def var_mean(
    self: Value, dim: Dims = None, *, correction: Any = None, out: tuple[Spec, Spec]
) -> tuple[Value, Value]:
    """Variance and mean over ``dim`` with Bessel's ``correction`` (default 1)."""
    x = hlo.convert(self, opmath(self.dtype))
    variance, average = _variance(x, axes_of(dim, x.rank), _default_correction(correction))
    return finish(variance, out[0]), finish(average, out[1])


@lowers(aten.std_mean.correction, dtypes=FLOATING | COMPLEX, ignores=("keepdim",))
def std_mean(
    self: Value, dim: Dims = None, *, correction: Any = None, out: tuple[Spec, Spec]
) -> tuple[Value, Value]:
    """Standard deviation and mean over ``dim`` with Bessel's ``correction`` (default 1)."""
    x = hlo.convert(self, opmath(self.dtype))
    deviation, average = _deviation(x, axes_of(dim, x.rank), _default_correction(correction))
    return finish(deviation, out[0]), finish(average, out[1])


@lowers(aten.logsumexp.default, dtypes=SUMMABLE, ignores=("keepdim",))
def logsumexp(self: Value, dim: Dims, out: Spec) -> Value:
    """``log(sum(exp(self)))`` over ``dim`` without overflow; −inf if there are no elements."""
    x = hlo.convert(self, opmath(out.dtype))
    axes = axes_of(dim, x.rank)
    peak = hlo.reduce_max(hlo.real(x), axes)
    # An infinite maximum would turn inf − inf into NaN.
    peak = hlo.select(hlo.is_finite(peak), peak, 0.0)
    shift = hlo.convert(peak, x.dtype)
    total = hlo.reduce_sum(hlo.exponential(x - restore(shift, x.shape, axes)), axes)
    return finish(hlo.log(total) + shift, out)


@lowers(aten.linalg_vector_norm.default, dtypes=FLOATING | COMPLEX, ignores=("keepdim",))
def linalg_vector_norm(
    self: Value, ord: Any = 2, dim: Dims = None, *, dtype: DType | None = None, out: Spec
) -> Value:
    """``sum(|x|^ord)^(1/ord)`` over ``dim``, including orders 0 (count) and ±inf (extremes)."""
    x = hlo.abs_(hlo.convert(self, opmath(dtype or self.dtype)))
    axes = axes_of(dim, x.rank)
    return finish(norm_of_magnitudes(x, float(ord), axes), out)


def norm_of_magnitudes(x: Value, order: float, axes: Sequence[int]) -> Value:
    """Return the ``order``-norm over ``axes`` of nonnegative elements."""
    if order == 0:
        return hlo.reduce_sum(hlo.convert(hlo.ne(x, 0.0), x.dtype), axes)
    if order == float("inf"):
        return hlo.reduce_max(x, axes)
    if order == float("-inf"):
        return hlo.reduce_min(x, axes)
    if order == 1:
        return hlo.reduce_sum(x, axes)
    if order == 2:
        return hlo.sqrt(hlo.reduce_sum(x * x, axes))
    return hlo.power(hlo.reduce_sum(hlo.power(x, order), axes), 1.0 / order)


@lowers(aten.hash_tensor.default, dtypes=ALL_INTEGRAL | FLOATING | BOOLEAN, ignores=("keepdim", "mode"))
def hash_tensor(self: Value, dim: Dims = None, *, out: Spec) -> Value:
    """Exclusive or over ``dim`` of the elements' 64-bit patterns (floats as float64); ``mode`` is 0."""
    if self.dtype.is_floating:
        x = hlo.bitcast(hlo.convert(self, FLOAT64), UINT64)
    else:
        x = hlo.convert(self, UINT64)
    axes = axes_of(dim, x.rank)
    return finish(hlo.reduce([x], [0], axes, lambda a, b: a ^ b)[0], out)
