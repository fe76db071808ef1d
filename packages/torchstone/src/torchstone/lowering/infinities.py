"""Complex functions of operands with an infinite or NaN part.

StableHLO leaves these undefined, and engines return NaN where a zero beside an infinity
determines the result. Here they follow C99, annex G, as PyTorch's CPU kernels do.
For finite and for real operands they are the kernels of :mod:`torchstone.hlo` and :mod:`.precise`.
C99, too, leaves the sign of a zero or an infinity beside a NaN undefined.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from .. import hlo
from ..hlo import Value
from . import precise
from .common import copysign, is_infinite

Kernel = Callable[[Value], Value]
Settle = Callable[[Value, Value, Value, Value], tuple[Value, Value]]
"""Maps the parts of the operand (x, y) and result (u, v) to the corrected parts of the result."""


def _settled(kernel: Kernel, settle: Settle) -> Kernel:
    def function(z: Value) -> Value:
        w = kernel(z)
        if not z.dtype.is_complex:
            return w
        return hlo.complex_(*settle(hlo.real(z), hlo.imag(z), hlo.real(w), hlo.imag(w)))

    function.__doc__ = kernel.__doc__
    return function


def _undefined(x: Value) -> Value:
    """True where ``x`` is infinite or NaN."""
    return ~hlo.is_finite(x)


def _is_zero(x: Value) -> Value:
    return hlo.eq(x, 0)


def _sine(x: Value, y: Value, u: Value, v: Value) -> tuple[Value, Value]:
    v = hlo.select(_is_zero(y), y, v)
    return hlo.select(_is_zero(x), x, u), hlo.select(is_infinite(y) & _undefined(x), math.inf, v)


def _cosine(x: Value, y: Value, u: Value, v: Value) -> tuple[Value, Value]:
    v = hlo.select(hlo.is_nan(v) & (_is_zero(x) | _is_zero(y)), 0.0, v)
    return hlo.select(is_infinite(y) & _undefined(x), math.inf, u), v


def _sinh(x: Value, y: Value, u: Value, v: Value) -> tuple[Value, Value]:
    u = hlo.select(_is_zero(x), x, u)
    return hlo.select(is_infinite(x) & _undefined(y), math.inf, u), v


def _cosh(x: Value, y: Value, u: Value, v: Value) -> tuple[Value, Value]:
    v = hlo.select(hlo.is_nan(v) & (_is_zero(x) | _is_zero(y)), 0.0, v)
    return hlo.select(is_infinite(x) & _undefined(y), math.inf, u), v


def _tan(x: Value, y: Value, u: Value, v: Value) -> tuple[Value, Value]:
    return u, hlo.select(_is_zero(y), y, v)


def _tanh(x: Value, y: Value, u: Value, v: Value) -> tuple[Value, Value]:
    return hlo.select(_is_zero(x), x, u), v


def _asin(x: Value, y: Value, u: Value, v: Value) -> tuple[Value, Value]:
    return copysign(hlo.select(_is_zero(x), x, u), x), copysign(v, y)


def _asinh(x: Value, y: Value, u: Value, v: Value) -> tuple[Value, Value]:
    return copysign(u, x), copysign(hlo.select(_is_zero(y) & hlo.is_nan(x), y, v), y)


def _acos(x: Value, y: Value, u: Value, v: Value) -> tuple[Value, Value]:
    return hlo.select(_is_zero(x) & hlo.is_nan(y), math.pi / 2, u), copysign(v, -y)


def _acosh(x: Value, y: Value, u: Value, v: Value) -> tuple[Value, Value]:
    return u, copysign(hlo.select(_is_zero(x) & hlo.is_nan(y), math.pi / 2, v), y)


def _atan(x: Value, y: Value, u: Value, v: Value) -> tuple[Value, Value]:
    lost = hlo.is_nan(x) | (hlo.is_nan(y) & ~is_infinite(x))
    v = hlo.select(_is_zero(y) & hlo.is_nan(x), y, v)
    return copysign(hlo.select(lost, math.nan, u), x), copysign(v, y)


def _atanh(x: Value, y: Value, u: Value, v: Value) -> tuple[Value, Value]:
    lost = hlo.is_nan(y) | (hlo.is_nan(x) & ~is_infinite(y))
    u = hlo.select(_is_zero(x) & hlo.is_nan(y), x, u)
    return copysign(u, x), copysign(hlo.select(lost, math.nan, v), y)


def _exponential(x: Value, y: Value, u: Value, v: Value) -> tuple[Value, Value]:
    grows, vanishes = (hlo.eq(x, end) & _undefined(y) for end in (math.inf, -math.inf))
    return hlo.select(grows, math.inf, hlo.select(vanishes, 0.0, u)), hlo.select(vanishes, 0.0, v)


def _log(x: Value, y: Value, u: Value, v: Value) -> tuple[Value, Value]:
    return hlo.select(is_infinite(x) | is_infinite(y), math.inf, u), v


def _sqrt(x: Value, y: Value, u: Value, v: Value) -> tuple[Value, Value]:
    lost = hlo.is_nan(y)
    u = hlo.select(is_infinite(y) | (hlo.eq(x, math.inf) & lost), math.inf, u)
    v = hlo.select(is_infinite(y) | (hlo.eq(x, -math.inf) & lost), math.inf, v)
    return u, copysign(v, y)


sine = _settled(hlo.sine, _sine)
cosine = _settled(hlo.cosine, _cosine)
tan = _settled(hlo.tan, _tan)
sinh = _settled(precise.sinh, _sinh)
cosh = _settled(precise.cosh, _cosh)
tanh = _settled(precise.tanh, _tanh)
asin = _settled(precise.asin, _asin)
acos = _settled(hlo.acos, _acos)
atan = _settled(hlo.atan, _atan)
asinh = _settled(hlo.asinh, _asinh)
acosh = _settled(hlo.acosh, _acosh)
atanh = _settled(hlo.atanh, _atanh)


def _exponential_of_nan(x: Value) -> Value:
    """Return ``exp(x)``, with NaN for NaN: XLA's CPU compiler folds exp of a constant real NaN wrongly."""
    result = hlo.exponential(x)
    return result if x.dtype.is_complex else hlo.select(hlo.is_nan(x), x, result)


exponential = _settled(_exponential_of_nan, _exponential)
log = _settled(hlo.log, _log)
sqrt = _settled(hlo.sqrt, _sqrt)
