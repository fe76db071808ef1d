"""Trigonometric and hyperbolic functions and their inverses.

Integers and bools become floats first. Not here: ``tanh`` (``elementary``, next to
the logistic function).
"""

from __future__ import annotations

from ... import hlo
from ...dtypes import ALL_INTEGRAL, BOOLEAN, FLOATING, STANDARD, UNSIGNED
from ...torch_internals.operators import namespace
from .. import infinities
from ..factories import lowers_binary, lowers_unary

aten = namespace("aten")

_ALL = STANDARD | UNSIGNED


lowers_unary(aten.sin.default, kernel=infinities.sine, dtypes=_ALL)
lowers_unary(aten.cos.default, kernel=infinities.cosine, dtypes=_ALL)
lowers_unary(aten.tan.default, kernel=infinities.tan, dtypes=_ALL)
lowers_unary(aten.asin.default, kernel=infinities.asin, dtypes=_ALL)
lowers_unary(aten.acos.default, kernel=infinities.acos, dtypes=_ALL)
lowers_unary(aten.atan.default, kernel=infinities.atan, dtypes=_ALL)
lowers_unary(aten.sinh.default, kernel=infinities.sinh, dtypes=_ALL)
lowers_unary(aten.cosh.default, kernel=infinities.cosh, dtypes=_ALL)
lowers_unary(aten.asinh.default, kernel=infinities.asinh, dtypes=_ALL)
lowers_unary(aten.acosh.default, kernel=infinities.acosh, dtypes=_ALL)
lowers_unary(aten.atanh.default, kernel=infinities.atanh, dtypes=_ALL)
lowers_binary(aten.atan2.default, kernel=hlo.atan2, dtypes=ALL_INTEGRAL | FLOATING | BOOLEAN)
