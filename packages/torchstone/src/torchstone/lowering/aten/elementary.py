"""Exponentials, logarithms, roots, powers, rounding; trigonometry is in ``trigonometry``.

Integers and bools become floats first, as PyTorch promotes them. Complex functions
follow PyTorch on every finite operand, signed zeros included, and most on infinities
and NaN too (``infinities``).
"""

from __future__ import annotations

import math
from typing import Any

import torch

from ... import hlo
from ...dtypes import ALL_INTEGRAL, COMPLEX, FLOAT8, FLOATING, STANDARD, UNSIGNED
from ...hlo import Value
from ...torch_internals.operators import namespace
from .. import infinities, precise
from ..common import by_parts, truncate
from ..factories import lowers_unary
from ..promotion import broadcast, operands_of, opmath
from ..registry import Spec, lowers

aten = namespace("aten")

_ALL = STANDARD | UNSIGNED
_ALL_REAL = ALL_INTEGRAL | FLOATING


# Exponentials and logarithms -------------------------------------------------------------


def _exp2(x: Value) -> Value:
    """``2 ** self``."""
    if x.dtype.is_complex:
        return infinities.exponential(by_parts(lambda part: part * math.log(2.0), x))
    return hlo.power(2.0, x)


def _log2(x: Value) -> Value:
    """Logarithm to base 2."""
    if x.dtype.is_complex:
        return by_parts(lambda part: part / math.log(2.0), infinities.log(x))
    return precise.log2(x)


def _log10(x: Value) -> Value:
    """Logarithm to base 10."""
    if x.dtype.is_complex:
        return by_parts(lambda part: part / math.log(10.0), infinities.log(x))
    return precise.log10(x)


lowers_unary(aten.exp.default, kernel=infinities.exponential, dtypes=_ALL)
lowers_unary(aten.exp2.default, kernel=_exp2, dtypes=_ALL)
lowers_unary(aten.expm1.default, kernel=precise.expm1, dtypes=_ALL)
lowers_unary(aten.log.default, kernel=infinities.log, dtypes=_ALL)
lowers_unary(aten.log2.default, kernel=_log2, dtypes=_ALL)
lowers_unary(aten.log10.default, kernel=_log10, dtypes=_ALL)
lowers_unary(aten.log1p.default, kernel=hlo.log_plus_one, dtypes=_ALL)


# Roots and powers ----------------------------------------------------------------------------


def _rsqrt(x: Value) -> Value:
    """One over the square root."""
    return 1.0 / infinities.sqrt(x) if x.dtype.is_complex else hlo.rsqrt(x)


lowers_unary(aten.sqrt.default, kernel=infinities.sqrt, dtypes=_ALL)
lowers_unary(aten.rsqrt.default, kernel=_rsqrt, dtypes=_ALL)

_BY_EXPONENT = {
    0.5: infinities.sqrt,
    -0.5: _rsqrt,
    1: lambda x: x,
    2: lambda x: x * x,
    3: lambda x: x * x * x,
    -1: lambda x: 1 / x,
    -2: lambda x: 1 / (x * x),
}


@lowers(aten.pow.Tensor_Tensor, aten.pow.Scalar, dtypes=_ALL | FLOAT8)
def pow_(self: Any, exponent: Value, *, out: Spec) -> Value:
    """``self ** exponent``; a negative power of an integer is 0, except for ±1."""
    x, y = operands_of((self, exponent), out.dtype, out.shape)
    power = _power(x, y)
    if x.dtype.is_complex:
        # PyTorch multiplies by the logarithm of the base, unless the exponent is a number.
        undefined = hlo.eq(x, 0) & hlo.eq(y, 0)
        power = hlo.select(undefined, hlo.full_like(power, complex(math.nan, math.nan)), power)
    return hlo.convert(power, out.dtype)


@lowers(aten.pow.Tensor_Scalar, dtypes=_ALL | FLOAT8)
def pow_number(self: Value, exponent: Any, *, out: Spec) -> Value:
    """``self ** exponent``; common exponents use multiplication or square roots."""
    (x,) = broadcast((self,), opmath(out.dtype), out.shape)
    known = not isinstance(exponent, torch.SymInt)  # comparing a symbol would add a guard
    if known and exponent in (_BY_EXPONENT if not out.dtype.is_integer else (1, 2, 3)):
        return hlo.convert(_BY_EXPONENT[exponent](x), out.dtype)
    return hlo.convert(_power(x, *operands_of((exponent,), out.dtype, out.shape)), out.dtype)


def _power(x: Value, exponent: Value) -> Value:
    if x.dtype.is_bool:
        return x | ~exponent
    if x.dtype.is_integer:
        return _integer_power(x, exponent)
    power = hlo.power(x, exponent)
    if not x.dtype.is_complex:
        return power
    vanishes = hlo.eq(x, 0) & (hlo.real(exponent) > 0)
    return hlo.select(vanishes, hlo.zeros_like(x), power)


def _integer_power(x: Value, exponent: Value) -> Value:
    """Compute integer powers by repeated squaring, because engines disagree on exponents beyond the width.

    Results that do not fit wrap around.
    """
    axes = range(x.rank)

    def going(_: Value, __: Value, rest: Value) -> Value:
        return hlo.reduce_or(hlo.ne(rest, 0), axes)

    def step(result: Value, square: Value, rest: Value) -> list[Value]:
        odd = hlo.ne(rest & 1, 0)
        return [hlo.select(odd, result * square, result), square * square, hlo.shift_right_logical(rest, 1)]

    signed = x.dtype.kind == "int"
    count = hlo.select(exponent < 0, hlo.zeros_like(x), exponent) if signed else exponent
    power = hlo.while_(going, step, [hlo.full_like(x, 1), x, count])[0]
    if not signed:
        return power
    odd = hlo.ne(exponent & 1, 0)
    inverse = hlo.select(hlo.eq(x, -1) & odd, hlo.full_like(x, -1), 1)
    inverse = hlo.select(hlo.eq(x, 1) | hlo.eq(x, -1), inverse, 0)
    return hlo.select(exponent < 0, inverse, power)


# Rounding: integers are unchanged ---------------------------------------------------------------


def _rounding(kernel: Any) -> Any:
    def function(x: Value) -> Value:
        return kernel(x) if x.dtype.is_floating else x

    function.__doc__ = kernel.__doc__
    return function


def _fraction(x: Value) -> Value:
    """``self - trunc(self)``."""
    return x - truncate(x)


lowers_unary(aten.ceil.default, kernel=_rounding(hlo.ceil), dtypes=_ALL_REAL)
lowers_unary(aten.floor.default, kernel=_rounding(hlo.floor), dtypes=_ALL_REAL)
lowers_unary(aten.round.default, kernel=_rounding(hlo.round_nearest_even), dtypes=_ALL_REAL)
lowers_unary(aten.trunc.default, kernel=_rounding(truncate), dtypes=_ALL_REAL, composite="trunc")
lowers_unary(aten.frac.default, kernel=_fraction, dtypes=FLOATING)


@lowers(aten.round.decimals, dtypes=_ALL_REAL)
def round_decimals(self: Value, decimals: int = 0, *, out: Spec) -> Value:
    """Round half to even to ``decimals`` places after the point (negative: before it)."""
    if not self.dtype.is_floating:
        return self
    x = hlo.convert(self, opmath(self.dtype))
    scale = 10.0 ** abs(decimals)
    if decimals >= 0:
        result = hlo.round_nearest_even(x * scale) / scale
    else:
        result = hlo.round_nearest_even(x / scale) * scale
    return hlo.convert(result, out.dtype)


# Logistic and hyperbolic tangent with their derivatives -----------------------------------------


lowers_unary(aten.sigmoid.default, kernel=hlo.logistic, dtypes=_ALL)
lowers_unary(aten.tanh.default, kernel=infinities.tanh, dtypes=_ALL)


@lowers(aten.sigmoid_backward.default, dtypes=FLOATING | COMPLEX)
def sigmoid_backward(grad_output: Value, output: Value, *, out: Spec) -> Value:
    """``grad_output * conj(output * (1 - output))``."""
    gradient, y = broadcast((grad_output, output), opmath(out.dtype), out.shape)
    if y.dtype.is_complex:
        return gradient * hlo.conj((1 - y) * y)
    return hlo.convert(gradient * (1 - y) * y, out.dtype)


@lowers(aten.tanh_backward.default, dtypes=FLOATING | COMPLEX)
def tanh_backward(grad_output: Value, output: Value, *, out: Spec) -> Value:
    """``grad_output * conj(1 - output²)``."""
    gradient, y = broadcast((grad_output, output), opmath(out.dtype), out.shape)
    return hlo.convert(gradient * hlo.conj(1 - y * y), out.dtype)
