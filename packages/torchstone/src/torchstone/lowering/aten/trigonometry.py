"""Trigonometric and hyperbolic functions and their inverses.

Integers and bools become floats first. Not here: ``tanh`` (``elementary``, beside
the logistic function).
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from ... import hlo
from ...dtypes import ALL_INTEGRAL, BOOLEAN, FLOATING, STANDARD, UNSIGNED
from ...hlo import Value
from ..common import copysign
from ..factories import lowers_binary, lowers_unary

aten = torch.ops.aten

_ALL = STANDARD | UNSIGNED


def _odd(kernel: Callable[[Value], Value]) -> Callable[[Value], Value]:
    """An inverse function whose parts have the signs of the operand's parts, on its branch cuts (±0) too."""

    def function(x: Value) -> Value:
        y = kernel(x)
        if not x.dtype.is_complex:
            return y
        return hlo.complex_(copysign(hlo.real(y), hlo.real(x)), copysign(hlo.imag(y), hlo.imag(x)))

    function.__doc__ = kernel.__doc__
    return function


def _acos(x: Value) -> Value:
    """Inverse cosine; the imaginary part has the opposite sign of the operand's."""
    y = hlo.acos(x)
    return hlo.complex_(hlo.real(y), copysign(hlo.imag(y), -hlo.imag(x))) if x.dtype.is_complex else y


def _acosh(x: Value) -> Value:
    """Inverse hyperbolic cosine; the imaginary part has the sign of the operand's."""
    y = hlo.acosh(x)
    return hlo.complex_(hlo.real(y), copysign(hlo.imag(y), hlo.imag(x))) if x.dtype.is_complex else y


lowers_unary(aten.sin.default, kernel=hlo.sine, dtypes=_ALL)
lowers_unary(aten.cos.default, kernel=hlo.cosine, dtypes=_ALL)
lowers_unary(aten.tan.default, kernel=hlo.tan, dtypes=_ALL)
lowers_unary(aten.asin.default, kernel=_odd(hlo.asin), dtypes=_ALL)
lowers_unary(aten.acos.default, kernel=_acos, dtypes=_ALL)
lowers_unary(aten.atan.default, kernel=_odd(hlo.atan), dtypes=_ALL)
lowers_unary(aten.sinh.default, kernel=hlo.sinh, dtypes=_ALL)
lowers_unary(aten.cosh.default, kernel=hlo.cosh, dtypes=_ALL)
lowers_unary(aten.asinh.default, kernel=_odd(hlo.asinh), dtypes=_ALL)
lowers_unary(aten.acosh.default, kernel=_acosh, dtypes=_ALL)
lowers_unary(aten.atanh.default, kernel=_odd(hlo.atanh), dtypes=_ALL)
lowers_binary(aten.atan2.default, kernel=hlo.atan2, dtypes=ALL_INTEGRAL | FLOATING | BOOLEAN)
