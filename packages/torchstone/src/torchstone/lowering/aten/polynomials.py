"""Orthogonal polynomials of integer degree: Chebyshev (shifted too), Hermite, Laguerre, Legendre.

Each evaluates its three-term recurrence in one loop over all elements. Like ATen/native/Math.h,
this module uses a closed form at the ends of the interval, and inside it for Chebyshev polynomials
of high degree. The degree is a tensor; negative degrees give 0.
PyTorch has no derivative of these.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ... import hlo
from ...dtypes import ALL_INTEGRAL, BOOLEAN, FLOAT32, FLOAT64, INT64
from ...hlo import Value
from ...torch_internals.operators import namespace
from ..precise import in_double
from ..promotion import broadcast
from ..registry import Spec, lowers

aten = namespace("aten")

DTYPES = ALL_INTEGRAL | BOOLEAN | {FLOAT32, FLOAT64}

Step = Callable[[Value, Value, Value, Value], tuple[Value, Value]]
"""``(x, k, pₖ, pₖ₋₁) → (pₖ₊₁, pₖ)``; some recurrences keep another value in place of pₖ₋₁."""


def _recurrence(
    x: Value, n: Value, first: Value, step: Step, *, before: Value | None = None, stop_at_nan: bool = True
) -> Value:
    """The polynomial of degree ``n`` (int64; negative: zero) from degrees 0 and 1 (``first``).

    ``before`` is the first step's second value, by default degree 0.
    """

    def active(k: Value, q: Value) -> Value:
        below = hlo.broadcast_to(k, n.shape) < n
        return below & ~hlo.is_nan(q) if stop_at_nan else below

    def goes_on(k: Value, q: Value, _: Value) -> Value:
        return hlo.reduce_or(active(k, q), range(q.rank))

    def body(k: Value, q: Value, p: Value) -> list[Value]:
        degree = hlo.broadcast_to(hlo.convert(k, x.dtype), x.shape)
        chosen = active(k, q)
        following, kept = step(x, degree, q, p)
        return [k + 1, hlo.select(chosen, following, q), hlo.select(chosen, kept, p)]

    start = hlo.full_like(x, 1) if before is None else before
    result = hlo.while_(goes_on, body, [hlo.scalar(1, INT64), first, start])[1]
    return hlo.select(n < 1, hlo.select(n < 0, hlo.zeros_like(x), 1), result)


def _is_even(n: Value) -> Value:
    return hlo.eq(n & 1, 0)


def _real(n: Value, x: Value) -> Value:
    """An integer degree in the dtype of ``x``."""
    return hlo.convert(n, x.dtype)


# Chebyshev polynomials -------------------------------------------------------------


@dataclass(frozen=True)
class _Chebyshev:
    """One of the four kinds.

    ``first`` is the polynomial of degree 1. ``closed`` is the trigonometric form, used inside
    (-1, 1) for degrees greater than ``above`` (``above_shifted`` for the shifted polynomials).
    ``at_one`` and ``at_minus_one`` (up to the alternating sign) give the values at the ends
    for a degree.
    """

    first: Callable[[Value], Value]
    closed: Callable[[Value, Value], Value]
    at_one: Callable[[Value], Value]
    at_minus_one: Callable[[Value], Value]
    above: int
    above_shifted: int

    def plain(self, x: Value, n: Value) -> Value:
        """The polynomial of degree ``n`` at ``x``."""
        return self._at(x, n, self.above)

    def shifted(self, x: Value, n: Value) -> Value:
        """The polynomial of degree ``n`` at ``2 x - 1``."""
        return self._at(x + x - 1.0, n, self.above_shifted)

    def _at(self, x: Value, n: Value, above: int) -> Value:
        high = (n > above) & (hlo.abs_(x) < 1.0)
        closed = self.closed(_real(n, x), hlo.acos(x))
        upper, lower = hlo.eq(x, 1.0), hlo.eq(x, -1.0)
        sign = hlo.select(_is_even(n), hlo.full_like(x, 1), -1)
        ends = hlo.select(upper, _real(self.at_one(n), x), _real(self.at_minus_one(n), x) * sign)
        direct = high | upper | lower
        result = _recurrence(x, hlo.select(direct, hlo.zeros_like(n), n), self.first(x), _chebyshev_step)
        result = hlo.select(direct, hlo.select(high, closed, ends), result)
        return hlo.select(n < 0, hlo.zeros_like(x), result)


def _chebyshev_step(x: Value, _: Value, q: Value, p: Value) -> tuple[Value, Value]:
    return (x + x) * q - p, q


def _ones(n: Value) -> Value:
    return hlo.full_like(n, 1)


FIRST_KIND = _Chebyshev(
    first=lambda x: x,
    closed=lambda n, angle: hlo.cosine(n * angle),
    at_one=_ones,
    at_minus_one=_ones,
    above=6,
    above_shifted=6,
)
SECOND_KIND = _Chebyshev(
    first=lambda x: x + x,
    closed=lambda n, angle: hlo.sine((n + 1.0) * angle) / hlo.sine(angle),
    at_one=lambda n: n + 1,
    at_minus_one=lambda n: n + 1,
    above=8,
    above_shifted=6,
)
THIRD_KIND = _Chebyshev(
    first=lambda x: x + x - 1.0,
    closed=lambda n, angle: hlo.cosine((n + 0.5) * angle) / hlo.cosine(angle * 0.5),
    at_one=_ones,
    at_minus_one=lambda n: n + n + 1,
    above=8,
    above_shifted=6,
)
FOURTH_KIND = _Chebyshev(
    first=lambda x: x + x + 1.0,
    closed=lambda n, angle: hlo.sine((n + 0.5) * angle) / hlo.sine(angle * 0.5),
    at_one=lambda n: n + n + 1,
    at_minus_one=_ones,
    above=8,
    above_shifted=4,
)


# The others ------------------------------------------------------------------------


def _hermite(x: Value, n: Value, scale: float) -> Value:
    """Physicists' (``scale`` 2) or probabilists' (1) polynomial; NaN beyond ATen's largest degree."""
    limit = 512 if x.dtype is FLOAT64 else 128
    beyond = n > limit

    def step(x: Value, k: Value, q: Value, p: Value) -> tuple[Value, Value]:
        return x * scale * q - k * scale * p, q

    capped = hlo.select(beyond, hlo.zeros_like(n), n)
    result = _recurrence(x, capped, x * scale, step, stop_at_nan=False)
    return hlo.select(beyond, hlo.full_like(x, math.nan), result)


def _laguerre(x: Value, n: Value) -> Value:
    at_zero = hlo.eq(x, 0.0)

    # Near 0 the polynomial is close to 1 for every degree. Differences of neighbors keep the digits.
    near = hlo.abs_(x) < 4.0

    def step(x: Value, k: Value, q: Value, other: Value) -> tuple[Value, Value]:
        change = (k * other - x * q) / (k + 1.0)
        following = ((k + k + (1.0 - x)) * q - k * other) / (k + 1.0)
        return hlo.select(near, q + change, following), hlo.select(near, change, q)

    capped = hlo.select(at_zero, hlo.minimum(n, 0), n)
    return _recurrence(x, capped, 1.0 - x, step, before=hlo.select(near, -x, hlo.full_like(x, 1)))


def _legendre(x: Value, n: Value) -> Value:
    at_end = hlo.eq(hlo.abs_(x), 1.0)
    ends = hlo.select((x > 0.0) | _is_even(n), hlo.full_like(x, 1), -1)

    def step(x: Value, k: Value, q: Value, p: Value) -> tuple[Value, Value]:
        return ((k + k + 1.0) * x * q - k * p) / (k + 1.0), q

    result = _recurrence(x, hlo.select(at_end, hlo.minimum(n, 0), n), x, step)
    return hlo.select(at_end & (n > 0), ends, result)


# Registration ------------------------------------------------------------------------

_KERNELS: dict[str, Callable[[Value, Value], Value]] = {
    "special_hermite_polynomial_h": lambda x, n: _hermite(x, n, 2.0),
    "special_hermite_polynomial_he": lambda x, n: _hermite(x, n, 1.0),
    "special_laguerre_polynomial_l": _laguerre,
    "special_legendre_polynomial_p": _legendre,
}
for _letter, _kind in {"t": FIRST_KIND, "u": SECOND_KIND, "v": THIRD_KIND, "w": FOURTH_KIND}.items():
    _KERNELS[f"special_chebyshev_polynomial_{_letter}"] = _kind.plain
    _KERNELS[f"special_shifted_chebyshev_polynomial_{_letter}"] = _kind.shifted

NAMES = tuple(_KERNELS)
"""The operators of this family. Each also has overloads with a scalar point or degree."""


def _degree(n: Value) -> Value:
    """A degree as int64, truncated toward zero; NaN and ±inf count as negative."""
    return hlo.convert(hlo.select(hlo.is_finite(n), n, -1), INT64)


def _register(name: str, kernel: Callable[[Value, Value], Value]) -> None:
    def function(x: Any, n: Any, out: Spec) -> Value:
        points, degree = broadcast((x, n), out.dtype, out.shape)
        # Rounding each step to float32 would lose digits near the zeros of the polynomial.
        return in_double(lambda points: kernel(points, _degree(degree)))(points)

    packet = getattr(aten, name)
    function.__qualname__ = function.__name__ = name
    function.__doc__ = f"{name.removeprefix('special_').replace('_', ' ')} of degree ``n`` at ``x``."
    lowers(packet.default, packet.x_scalar, packet.n_scalar, dtypes=DTYPES)(function)


for _name, _kernel in _KERNELS.items():
    _register(_name, _kernel)
