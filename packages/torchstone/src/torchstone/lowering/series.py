"""Polynomials, Chebyshev series and case distinctions: the building blocks of special functions.

Coefficients are Python floats. A series is truncated where its tail has no effect
in the operand's dtype. Not here: the functions themselves (``lowering.aten``).
"""

from __future__ import annotations

from collections.abc import Sequence

from .. import hlo
from ..dtypes import FLOAT64
from ..hlo import Value


def table(text: str) -> tuple[float, ...]:
    """Parse numbers separated by whitespace."""
    return tuple(map(float, text.split()))


def epsilon(x: Value) -> float:
    """The distance from 1 to the next larger float32 or float64."""
    return 2.0**-52 if x.dtype is FLOAT64 else 2.0**-23


def polynomial(x: Value, coefficients: Sequence[float]) -> Value:
    """Evaluate a polynomial by Horner's rule; the highest power comes first."""
    result = hlo.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        result = result * x + coefficient
    return result


def chebyshev(t: Value, coefficients: Sequence[float]) -> Value:
    """``Σ cⱼ Tⱼ(t)`` for t in [-1, 1]; the constant term comes first (Clenshaw 1955)."""
    kept = len(coefficients)
    tail = 0.0
    while kept > 2 and tail + abs(coefficients[kept - 1]) < epsilon(t) / 16:
        kept -= 1
        tail += abs(coefficients[kept])
    twice = t + t
    later, last = hlo.zeros_like(t), hlo.full_like(t, coefficients[kept - 1])
    for coefficient in reversed(coefficients[1 : kept - 1]):
        later, last = last, twice * last - later + coefficient
    return t * last - later + coefficients[0]


def choose(value: Value, *cases: tuple[Value, Value | float]) -> Value:
    """``value``, replaced by each case's result where its condition holds; later cases win."""
    for condition, result in cases:
        value = hlo.select(condition, result, value)
    return value
