"""Greatest common divisors and least common multiples of integers."""

from __future__ import annotations

from ... import hlo
from ...dtypes import BOOLEAN, INT32, INTEGRAL
from ...hlo import Value
from ...torch_internals.operators import namespace
from ..factories import lowers_binary

aten = namespace("aten")


def _gcd(a: Value, b: Value) -> Value:
    """Nonnegative greatest common divisor (Euclid's algorithm on all elements at once)."""

    def going(_: Value, rest: Value) -> Value:
        return hlo.reduce_or(hlo.ne(rest, 0), range(rest.rank))

    def step(value: Value, rest: Value) -> list[Value]:
        over = hlo.ne(rest, 0)
        # A zero divisor marks a finished element: divide by 1 there.
        left = hlo.remainder(value, hlo.select(over, rest, 1))
        return [hlo.select(over, rest, value), hlo.select(over, left, 0)]

    return hlo.while_(going, step, [hlo.abs_(a), hlo.abs_(b)])[0]


def _lcm(a: Value, b: Value) -> Value:
    """Least common multiple, nonnegative unless it overflows; 0 if either operand is 0."""
    # C computes small integers in 32 bits, so take the absolute value before dropping the high bits.
    a, b = (hlo.convert(x, INT32) if x.dtype.bits < 32 else x for x in (a, b))
    divisor = _gcd(a, b)
    nothing = hlo.eq(divisor, 0)
    return hlo.abs_(hlo.select(nothing, 0, a / hlo.select(nothing, 1, divisor) * b))


lowers_binary(aten.gcd.default, kernel=_gcd, dtypes=INTEGRAL | BOOLEAN)
lowers_binary(aten.lcm.default, kernel=_lcm, dtypes=INTEGRAL | BOOLEAN)
