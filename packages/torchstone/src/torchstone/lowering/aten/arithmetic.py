"""Addition, subtraction, multiplication, division and their relatives.

Not here: comparison and selection (clamp too), bitwise and logical operators,
powers and transcendental functions, matrix products; the parts of a floating-point
number (``float_parts``) and divisors of integers (``number_theory``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ... import hlo
from ...dtypes import ALL_INTEGRAL, BOOLEAN, COMPLEX, COPYABLE, FLOAT32, FLOATING, HALF, STANDARD, UNSIGNED
from ...hlo import Value
from ...torch_internals.operators import namespace
from ..common import magnitude, truncate
from ..conditions import DIVISOR, ROUNDED_DIVISOR
from ..factories import lowers_binary, lowers_unary
from ..precise import in_double
from ..promotion import as_value, broadcast, operands_of, opmath, rounded
from ..registry import Spec, lowers

aten = namespace("aten")

_ALL_NUMERIC = ALL_INTEGRAL | FLOATING | COMPLEX
_ALL = STANDARD | UNSIGNED
_REAL = ALL_INTEGRAL | FLOATING | BOOLEAN


def scaled(value: Value, factor: Any) -> Value:
    """``value * factor`` for a Python number. Multiplying by one adds no operation."""
    if not isinstance(factor, torch.SymInt) and factor == 1:
        return value
    if value.dtype.is_bool:
        return value & bool(factor)
    return value * hlo.broadcast_to(as_value(factor, value.dtype), value.shape)


# Sums and products -----------------------------------------------------------------


def _times(value: Value, alpha: Any, out: Spec) -> Value:
    """``alpha * value``; a sum of 16-bit floats rounds ``alpha`` first."""
    if out.dtype not in HALF or (not isinstance(alpha, torch.SymInt) and alpha == 1):
        return scaled(value, alpha)
    return value * hlo.broadcast_to(rounded(alpha, out.dtype), value.shape)


@lowers(aten.add.Tensor, aten.add.Scalar, dtypes=_ALL)
def add(self: Any, other: Any, alpha: Any = 1, *, out: Spec) -> Value:
    """``self + alpha * other``; logical or for bools."""
    x, y = operands_of((self, other), out.dtype, out.shape)
    result = x | scaled(y, alpha) if out.dtype.is_bool else x + _times(y, alpha, out)
    return hlo.convert(result, out.dtype)


@lowers(aten.sub.Tensor, aten.sub.Scalar, dtypes=_ALL)
def sub(self: Any, other: Any, alpha: Any = 1, *, out: Spec) -> Value:
    """``self - alpha * other``."""
    x, y = operands_of((self, other), out.dtype, out.shape)
    return hlo.convert(x - _times(y, alpha, out), out.dtype)


@lowers(aten.rsub.Tensor, aten.rsub.Scalar, dtypes=_ALL)
def rsub(self: Any, other: Any, alpha: Any = 1, *, out: Spec) -> Value:
    """``other - alpha * self``."""
    return sub(other, self, alpha, out=out)


def _multiply(a: Value, b: Value) -> Value:
    """``self * other``; logical and for bools."""
    return a & b if a.dtype.is_bool else a * b


lowers_binary(aten.mul.Tensor, aten.mul.Scalar, kernel=_multiply, dtypes=COPYABLE, unrounded=(0, 1))


@lowers(aten.addcmul.default, dtypes=_ALL_NUMERIC)
def addcmul(self: Value, tensor1: Value, tensor2: Value, value: Any = 1, *, out: Spec) -> Value:
    """``self + value * tensor1 * tensor2``."""
    x, a, b = broadcast((self, tensor1, tensor2), opmath(out.dtype), out.shape)
    return hlo.convert(x + scaled(a, value) * b, out.dtype)


@lowers(aten.addcdiv.default, dtypes=FLOATING | COMPLEX)
def addcdiv(self: Value, tensor1: Value, tensor2: Value, value: Any = 1, *, out: Spec) -> Value:
    """``self + value * tensor1 / tensor2``."""
    x, a, b = broadcast((self, tensor1, tensor2), opmath(out.dtype), out.shape)
    return hlo.convert(x + scaled(a, value) / b, out.dtype)


@lowers(aten.lerp.Scalar, aten.lerp.Tensor, dtypes=FLOATING | COMPLEX)
def lerp(self: Value, end: Value, weight: Any, *, out: Spec) -> Value:
    """``self + weight * (end - self)``, computed from the nearer end (ATen/native/Lerp.h)."""
    x, y, w = broadcast((self, end, weight), opmath(out.dtype), out.shape)
    span = y - x
    near = hlo.abs_(w) < 0.5
    return hlo.convert(hlo.select(near, x + w * span, y - span * (1 - w)), out.dtype)


# Quotients and remainders ------------------------------------------------------------


def _divide(a: Value, b: Value) -> Value:
    """``self / other``; integers are converted to floats."""
    return a / b


def _kept_small(kernel: Callable[[Value, Value], Value]) -> Callable[[Value, Value], Value]:
    """Run ``kernel`` in float64 for float32 operands, so that a subnormal remainder does not become zero."""

    def function(a: Value, b: Value) -> Value:
        return in_double(kernel)(a, b) if a.dtype is FLOAT32 else kernel(a, b)

    function.__doc__ = kernel.__doc__
    return function


@_kept_small
def _divide_down(a: Value, b: Value) -> Value:
    """``floor(self / other)``, exact where the quotient is (c10/util/generic_math.h, ``div_floor``)."""
    if a.dtype.is_unsigned:
        return a / b
    rest = hlo.remainder(a, b)
    crosses = hlo.ne(rest, 0) & hlo.ne(b < 0, rest < 0)
    if a.dtype.is_integer:
        quotient = a / b
        return hlo.select(crosses, quotient - 1, quotient)
    quotient = (a - rest) / b
    quotient = hlo.select(crosses, quotient - 1.0, quotient)
    down = hlo.floor(quotient)
    down = hlo.select(quotient - down > 0.5, down + 1.0, down)
    plain = a / b
    return hlo.select(hlo.eq(b, 0), plain, hlo.select(hlo.eq(quotient, 0), plain * 0.0, down))


def _divide_toward_zero(a: Value, b: Value) -> Value:
    if a.dtype.is_integer:
        return a / b
    # If all elements share one divisor, XLA multiplies by its reciprocal, which makes 147 / 49 less than 3.
    return truncate(a / hlo.select(hlo.is_nan(a), a, b))


_ROUNDED = {None: _divide, "floor": _divide_down, "trunc": _divide_toward_zero}

lowers_binary(aten.div.Tensor, aten.div.Scalar, kernel=_divide, dtypes=_ALL, unrounded=(1,))
lowers_binary(
    aten.floor_divide.default,
    aten.floor_divide.Scalar,
    kernel=_divide_down,
    dtypes=_REAL,
    values=[DIVISOR],
    unrounded=(1,),
)


@lowers(aten.div.Tensor_mode, aten.div.Scalar_mode, dtypes=_ALL, values=[ROUNDED_DIVISOR])
def div_mode(self: Value, other: Any, rounding_mode: str | None, *, out: Spec) -> Value:
    """``self / other``, rounded down (``floor``), toward zero (``trunc``) or not at all (None)."""
    x, y = operands_of((self, other), out.dtype, out.shape, unrounded=(1,))
    return hlo.convert(_ROUNDED[rounding_mode](x, y), out.dtype)


@_kept_small
def _modulo(a: Value, b: Value) -> Value:
    """``self - other * floor(self / other)``: the remainder with the divisor's sign."""
    rest = hlo.remainder(a, b)
    if a.dtype.is_unsigned:
        return rest
    crosses = hlo.ne(rest, 0) & hlo.ne(b < 0, rest < 0)
    return hlo.select(crosses, rest + b, rest)


def _fmod(a: Value, b: Value) -> Value:
    """The remainder with the dividend's sign (C's ``fmod``)."""
    return hlo.remainder(a, b)


lowers_binary(
    aten.remainder.Tensor,
    aten.remainder.Scalar,
    aten.remainder.Scalar_Tensor,
    kernel=_modulo,
    dtypes=_REAL,
    values=[DIVISOR],
)
lowers_binary(aten.fmod.Tensor, aten.fmod.Scalar, kernel=_fmod, dtypes=_REAL, values=[DIVISOR])


def _reciprocal(x: Value) -> Value:
    """``1 / self``; integers are converted to floats."""
    return 1 / x


lowers_unary(aten.reciprocal.default, kernel=_reciprocal, dtypes=_ALL)


# Signs and sizes ------------------------------------------------------------------------


def _sign(x: Value) -> Value:
    """−1, 0 or 1 (0 for NaN); bools are unchanged."""
    if x.dtype.is_bool:
        return x
    if x.dtype.is_unsigned:
        return hlo.convert(hlo.ne(x, 0), x.dtype)
    return hlo.convert(x > 0, x.dtype) - hlo.convert(x < 0, x.dtype)


def _sgn(x: Value) -> Value:
    """``self / |self|``, 0 at 0: the sign of a real number, the direction of a complex one."""
    if not x.dtype.is_complex:
        return _sign(x)
    size = hlo.abs_(x)
    return hlo.select(hlo.eq(size, 0), hlo.zeros_like(x), x / hlo.convert(size, x.dtype))


lowers_unary(aten.neg.default, kernel=hlo.negate, dtypes=_ALL_NUMERIC)
lowers_unary(aten.sign.default, kernel=_sign, dtypes=_REAL)
lowers_unary(aten.sgn.default, kernel=_sgn, dtypes=_ALL)


@lowers(aten.abs.default, dtypes=COPYABLE)
def abs_(self: Value, out: Spec) -> Value:
    """``|self|``; a complex number gives its real magnitude."""
    return hlo.convert(magnitude(hlo.convert(self, opmath(self.dtype))), out.dtype)


@lowers(aten.hypot.default, dtypes=_REAL)
def hypot(self: Value, other: Value, *, out: Spec) -> Value:
    """``sqrt(self² + other²)`` without overflow; infinite if either operand is infinite."""
    x, y = operands_of((self, other), out.dtype, out.shape)
    return hlo.convert(magnitude(hlo.complex_(x, y)), out.dtype)


# The larger and the smaller ------------------------------------------------------------------


def _fmax(a: Value, b: Value) -> Value:
    """The larger operand; if one is NaN, the other."""
    larger = hlo.maximum(a, b)
    if not a.dtype.is_floating:
        return larger
    return hlo.select(hlo.is_nan(a), b, hlo.select(hlo.is_nan(b), a, larger))


def _fmin(a: Value, b: Value) -> Value:
    """The smaller operand; if one is NaN, the other."""
    smaller = hlo.minimum(a, b)
    if not a.dtype.is_floating:
        return smaller
    return hlo.select(hlo.is_nan(a), b, hlo.select(hlo.is_nan(b), a, smaller))


lowers_binary(aten.maximum.default, kernel=hlo.maximum, dtypes=_REAL)
lowers_binary(aten.minimum.default, kernel=hlo.minimum, dtypes=_REAL)
lowers_binary(aten.fmax.default, kernel=_fmax, dtypes=_REAL)
lowers_binary(aten.fmin.default, kernel=_fmin, dtypes=_REAL)


@lowers(aten.heaviside.default, dtypes=_REAL)
def heaviside(self: Value, values: Value, out: Spec) -> Value:
    """0 below zero (and for NaN), 1 above, ``values`` at zero."""
    x, at_zero = broadcast((self, values), out.dtype, out.shape)
    positive = hlo.ne(x, 0) if out.dtype.is_unsigned else x > 0
    return hlo.select(hlo.eq(x, 0), at_zero, hlo.convert(positive, out.dtype))
