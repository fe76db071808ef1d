"""Comparison, classification of floats, logic, selection and clamping.

Not here: maximum and minimum of two tensors (``arithmetic``), reductions to a bool
(``reduction``), sorting and searching.
"""

from __future__ import annotations

from typing import Any

from ... import hlo
from ...dtypes import ALL_INTEGRAL, BOOL, BOOLEAN, COPYABLE, FLOAT8, FLOATING, STANDARD, UINT8, UNSIGNED
from ...hlo import Value
from ...torch_internals.operators import namespace
from ..common import is_infinite
from ..factories import lowers_compare, lowers_predicate
from ..promotion import broadcast, opmath
from ..registry import Spec, lowers

aten = namespace("aten")

_ALL = STANDARD | UNSIGNED
_ORDERED = ALL_INTEGRAL | FLOATING | BOOLEAN


# Comparison -----------------------------------------------------------------------------


def _less(a: Value, b: Value) -> Value:
    """``self < other``."""
    return a < b


def _less_or_equal(a: Value, b: Value) -> Value:
    """``self <= other``."""
    return a <= b


def _greater(a: Value, b: Value) -> Value:
    """``self > other``."""
    return a > b


def _greater_or_equal(a: Value, b: Value) -> Value:
    """``self >= other``."""
    return a >= b


lowers_compare(aten.eq.Tensor, aten.eq.Scalar, kernel=hlo.eq, dtypes=COPYABLE)
lowers_compare(aten.ne.Tensor, aten.ne.Scalar, kernel=hlo.ne, dtypes=COPYABLE)
lowers_compare(aten.lt.Tensor, aten.lt.Scalar, kernel=_less, dtypes=_ORDERED)
lowers_compare(aten.le.Tensor, aten.le.Scalar, kernel=_less_or_equal, dtypes=_ORDERED)
lowers_compare(aten.gt.Tensor, aten.gt.Scalar, kernel=_greater, dtypes=_ORDERED)
lowers_compare(aten.ge.Tensor, aten.ge.Scalar, kernel=_greater_or_equal, dtypes=_ORDERED)


# Classification -----------------------------------------------------------------------------


def _is_positive_infinite(x: Value) -> Value:
    """True where an element is +inf."""
    return hlo.eq(x, float("inf")) if x.dtype.is_floating else is_infinite(x)


def _is_negative_infinite(x: Value) -> Value:
    """True where an element is −inf."""
    return hlo.eq(x, float("-inf")) if x.dtype.is_floating else is_infinite(x)


lowers_predicate(aten.isnan.default, kernel=hlo.is_nan, dtypes=COPYABLE)
lowers_predicate(aten.isinf.default, kernel=is_infinite, dtypes=COPYABLE)
lowers_predicate(aten.isposinf.default, kernel=_is_positive_infinite, dtypes=_ORDERED)
lowers_predicate(aten.isneginf.default, kernel=_is_negative_infinite, dtypes=_ORDERED)
lowers_predicate(aten.signbit.default, kernel=hlo.signbit, dtypes=_ORDERED)


# Logic: each operand is converted to bool -------------------------------------------------------


def _register_logic(overload: Any, kernel: Any, meaning: str) -> None:
    def function(self: Value, other: Value, out: Spec) -> Value:
        return kernel(*broadcast((self, other), BOOL, out.shape))

    function.__doc__ = f"{meaning} of the operands, converted to bool."
    function.__name__ = function.__qualname__ = str(overload).removeprefix("aten.").partition(".")[0]
    lowers(overload, dtypes=_ALL)(function)


_register_logic(aten.logical_and.default, lambda a, b: a & b, "And")
_register_logic(aten.logical_or.default, lambda a, b: a | b, "Or")
_register_logic(aten.logical_xor.default, lambda a, b: a ^ b, "Exclusive or")


def _logical_not(x: Value) -> Value:
    """True where an element is zero."""
    return ~hlo.convert(x, BOOL)


lowers_predicate(aten.logical_not.default, kernel=_logical_not, dtypes=_ALL)


# Selection -------------------------------------------------------------------------------------


@lowers(
    aten.where.self,
    dtypes=BOOLEAN,
    gaps={UINT8: "PyTorch's shape function of this operator takes bool conditions only"},
)
def where(condition: Value, self: Value, other: Value, *, out: Spec) -> Value:
    """``self`` where ``condition`` holds, else ``other``."""
    (mask,) = broadcast((condition,), BOOL, out.shape)
    return hlo.select(mask, *broadcast((self, other), out.dtype, out.shape))


def _bounded(x: Value, low: Any, high: Any, out: Spec) -> Value:
    computed = opmath(out.dtype)
    (result,) = broadcast((x,), computed, out.shape)
    if low is not None:
        result = hlo.maximum(result, *broadcast((low,), computed, out.shape))
    if high is not None:
        result = hlo.minimum(result, *broadcast((high,), computed, out.shape))
    return hlo.convert(result, out.dtype)


@lowers(aten.clamp.default, aten.clamp.Tensor, dtypes=_ORDERED | FLOAT8)
def clamp(self: Value, min: Any = None, max: Any = None, *, out: Spec) -> Value:
    """``min(max(self, min), max)``; where a bound is NaN, so is the result."""
    return _bounded(self, min, max, out)


@lowers(aten.clamp_min.default, aten.clamp_min.Tensor, dtypes=_ORDERED | FLOAT8)
def clamp_min(self: Value, min: Any, *, out: Spec) -> Value:
    """``max(self, min)``."""
    return _bounded(self, min, None, out)


@lowers(aten.clamp_max.default, aten.clamp_max.Tensor, dtypes=_ORDERED | FLOAT8)
def clamp_max(self: Value, max: Any, *, out: Spec) -> Value:
    """``min(self, max)``."""
    return _bounded(self, None, max, out)
