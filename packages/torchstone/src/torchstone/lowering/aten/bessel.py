"""Bessel functions of the first, second and third kind, and the Airy function.

The approximations and their ranges come from ATen/native/Math.h, which took them
from Cephes, so results agree with eager to the last digits. Not here: the
error function (``special``), gamma functions (``gamma``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ... import hlo
from ...dtypes import ALL_INTEGRAL, BOOLEAN, FLOAT32, FLOAT64, REAL, UNSIGNED
from ...hlo import Value
from ...torch_internals.operators import namespace
from .. import bessel_tables as tables
from ..common import is_infinite
from ..factories import lowers_unary
from ..precise import in_double
from ..registry import Spec, lowers
from ..series import chebyshev, choose, epsilon, polynomial

aten = namespace("aten")

INFINITY, NAN = math.inf, math.nan
_ROOT_2_OVER_PI = math.sqrt(2 / math.pi)
_ROOT_OF_PI_INVERSE = 1 / math.sqrt(math.pi)

NO_HALF = ALL_INTEGRAL | BOOLEAN | {FLOAT32, FLOAT64}
"""The dtypes that PyTorch's CPU kernels without support for 16-bit floats accept."""

Coefficients = Sequence[float]


def ratio(x: Value, numerator: Coefficients, denominator: Coefficients) -> Value:
    return polynomial(x, numerator) / polynomial(x, denominator)


# Modified functions of the first kind -----------------------------------------------


def _scaled_i(size: Value, near: Coefficients, far: Coefficients) -> tuple[Value, Value]:
    """Return the series for |x| ≤ 8 and the one for larger |x|, which is divided by √|x|."""
    outside = hlo.maximum(size, 8.0)  # the unused branch must not divide by zero
    beyond = chebyshev(16.0 / outside - 1.0, far) / hlo.sqrt(outside)
    return chebyshev(size * 0.25 - 1.0, near), beyond


def i0e(x: Value) -> Value:
    """``exp(-|x|) I₀(x)``."""
    size = hlo.abs_(x)
    near, far = _scaled_i(size, tables.I0_NEAR, tables.I0_FAR)
    return hlo.select(size <= 8.0, near, far)


def i1e(x: Value) -> Value:
    """``exp(-|x|) I₁(x)``."""
    size = hlo.abs_(x)
    near, far = _scaled_i(size, tables.I1_NEAR, tables.I1_FAR)
    result = hlo.select(size <= 8.0, near * size, far)
    return hlo.select(x < 0.0, -result, result)


def i0(x: Value) -> Value:
    """Modified Bessel function of the first kind, order 0 (NaN at ±inf, as in eager)."""
    return hlo.exponential(hlo.abs_(x)) * i0e(x)


def i1(x: Value) -> Value:
    """Modified Bessel function of the first kind, order 1 (NaN at ±inf, as in eager)."""
    return hlo.exponential(hlo.abs_(x)) * i1e(x)


# Modified functions of the second kind ----------------------------------------------


def _at_the_edge(result: Value, x: Value) -> Value:
    return choose(result, (x < 0.0, NAN), (hlo.eq(x, 0.0), INFINITY))


def _k(x: Value, near: Callable[[Value], Value], far: Coefficients, *, scaled: bool) -> Value:
    outside = hlo.maximum(x, 2.0)
    beyond = chebyshev(4.0 / outside - 1.0, far) / hlo.sqrt(outside)
    inside = near(hlo.minimum(x, 2.0))
    if scaled:
        inside = inside * hlo.exponential(hlo.minimum(x, 2.0))
    else:
        beyond = hlo.exponential(-outside) * beyond
    return _at_the_edge(hlo.select(x <= 2.0, inside, beyond), x)


def _log_of_half(x: Value) -> Value:
    """``ln(x / 2)``, even for the smallest numbers, where x / 2 would be flushed to zero."""
    return hlo.select(x < 1.0, hlo.log(x) - math.log(2), hlo.log(x * 0.5))


def _k0_near(x: Value) -> Value:
    return chebyshev(x * x * 0.5 - 1.0, tables.K0_NEAR) - _log_of_half(x) * i0(x)


def _k1_near(x: Value) -> Value:
    return _log_of_half(x) * i1(x) + chebyshev(x * x * 0.5 - 1.0, tables.K1_NEAR) / x


def k0(x: Value) -> Value:
    """Modified Bessel function of the second kind, order 0."""
    return _k(x, _k0_near, tables.K0_FAR, scaled=False)


def k1(x: Value) -> Value:
    """Modified Bessel function of the second kind, order 1."""
    return _k(x, _k1_near, tables.K1_FAR, scaled=False)


def k0e(x: Value) -> Value:
    """``exp(x) K₀(x)``."""
    return _k(x, _k0_near, tables.K0_FAR, scaled=True)


def k1e(x: Value) -> Value:
    """``exp(x) K₁(x)``."""
    return _k(x, _k1_near, tables.K1_FAR, scaled=True)


# First and second kind ----------------------------------------------------------------


def _amplitude_and_phase(size: Value, order: int) -> tuple[Value, Value]:
    if order:
        z = (5.0 / size) * (5.0 / size)
        return ratio(z, tables.J1_PP, tables.J1_PQ), ratio(z, tables.J1_QP, tables.J1_QQ)
    z = 25.0 / (size * size)
    return ratio(z, tables.J0_PP, tables.J0_PQ), ratio(z, tables.J0_QP, tables.J0_QQ)


def _oscillating(size: Value, order: int, *, second_kind: bool) -> Value:
    """J or Y for arguments beyond 5 (Hankel's expansion)."""
    size = hlo.maximum(size, 5.0)
    p, q = _amplitude_and_phase(size, order)
    angle = size - (0.25 + 0.5 * order) * math.pi
    cosine, sine = hlo.cosine(angle), hlo.sine(angle)
    wave = p * sine + 5.0 / size * q * cosine if second_kind else p * cosine - 5.0 / size * q * sine
    return wave * _ROOT_2_OVER_PI / hlo.sqrt(size)


def j0(x: Value) -> Value:
    """Bessel function of the first kind, order 0."""
    size = hlo.abs_(x)
    square = size * size
    roots = (square - 5.78318596294678452118) * (square - 30.4712623436620863991)
    near = roots * polynomial(square, tables.J0_RP) / polynomial(square, tables.J0_RQ)
    near = hlo.select(size < 0.00001, 1.0 - square * 0.25, near)
    return hlo.select(size <= 5.0, near, _oscillating(size, 0, second_kind=False))


def j1(x: Value) -> Value:
    """Bessel function of the first kind, order 1."""
    size = hlo.abs_(x)
    square = size * size
    rational = ratio(square, tables.J1_RP, tables.J1_RQ)
    # Multiply by the operand last: its product with the rational function alone may be flushed to zero.
    near = rational * (square - 14.6819706421238932572) * (square - 49.2184563216946036703) * size
    result = hlo.select(size <= 5.0, near, _oscillating(size, 1, second_kind=False))
    return hlo.select(x < 0.0, -result, result)


def _second_kind(x: Value, near: Value, order: int) -> Value:
    result = hlo.select(x <= 5.0, near, _oscillating(x, order, second_kind=True))
    return choose(result, (x < 0.0, NAN), (hlo.eq(x, 0.0), -INFINITY))


def y0(x: Value) -> Value:
    """Bessel function of the second kind, order 0."""
    regular = ratio(x * x, tables.Y0_YP, tables.Y0_YQ)
    return _second_kind(x, regular + hlo.log(x) * j0(x) * (2.0 / math.pi), 0)


def y1(x: Value) -> Value:
    """Bessel function of the second kind, order 1."""

    def near(x: Value) -> Value:
        regular = x * ratio(x * x, tables.Y1_YP, tables.Y1_YQ)
        return regular + (j1(x) * hlo.log(x) - 1.0 / x) * (2.0 / math.pi)

    # Use float64: near the first zero two terms cancel.
    return _second_kind(x, in_double(near)(x), 1)


def spherical_j0(x: Value) -> Value:
    """``sin(x) / x``; near 0 a power series is used."""
    square = x * x
    # 1/(2k+1)! with alternating signs, k = 6 … 0
    near = polynomial(square, [(-1) ** k / math.factorial(2 * k + 1) for k in range(6, -1, -1)])
    result = hlo.select(hlo.abs_(x) < 0.5, near, hlo.sine(x) / x)
    return hlo.select(is_infinite(x), hlo.zeros_like(x), result)


# The Airy function --------------------------------------------------------------------

_AI_0 = 0.355028053887817239260
_MINUS_AI_PRIME_0 = 0.258819403792806798405
_AIRY_BORDER = 2.09


def _airy_series(x: Value) -> Value:
    """The Maclaurin series in x³ (DLMF 9.4.1), with enough terms for |x| ≤ 2.09."""
    f, g = [1.0], [1.0]
    while f[0] * _AIRY_BORDER ** (3 * len(f)) > epsilon(x) / 64:
        k = 3 * len(f)
        f.insert(0, f[0] / (k * (k - 1)))
        g.insert(0, g[0] / (k * (k + 1)))
    cube = x * x * x
    return polynomial(cube, f) * _AI_0 - x * polynomial(cube, g) * _MINUS_AI_PRIME_0


def airy_ai(x: Value) -> Value:
    """Airy function Ai (NaN at ±inf, as in eager)."""
    size = hlo.maximum(hlo.abs_(x), _AIRY_BORDER)
    zeta = 2.0 * size * hlo.sqrt(size) / 3.0
    z = 1.0 / zeta
    root = hlo.sqrt(hlo.sqrt(size))
    decaying = (
        ratio(z, tables.AIRY_N, tables.AIRY_D) * _ROOT_OF_PI_INVERSE / (root * hlo.exponential(zeta) * 2.0)
    )
    angle = zeta + 0.25 * math.pi
    square = z * z
    amplitude = square * ratio(square, tables.AIRY_FN, tables.AIRY_FD) + 1.0
    phase = z * ratio(square, tables.AIRY_GN, tables.AIRY_GD)
    waves = (hlo.sine(angle) * amplitude - hlo.cosine(angle) * phase) * _ROOT_OF_PI_INVERSE / root
    return choose(
        _airy_series(x),
        (x < -_AIRY_BORDER, waves),
        (x >= _AIRY_BORDER, decaying),
        (x > 103.892, 0.0),
        (is_infinite(x), NAN),
    )


lowers_unary(aten.i0.default, kernel=i0, dtypes=REAL | UNSIGNED | BOOLEAN)
lowers_unary(aten.special_i0e.default, kernel=i0e, dtypes=REAL | UNSIGNED | BOOLEAN)
lowers_unary(aten.special_i1.default, kernel=i1, dtypes=REAL | UNSIGNED | BOOLEAN)
lowers_unary(aten.special_i1e.default, kernel=i1e, dtypes=REAL | UNSIGNED | BOOLEAN)
lowers_unary(aten.special_modified_bessel_i0.default, kernel=i0, dtypes=NO_HALF)
lowers_unary(aten.special_modified_bessel_i1.default, kernel=i1, dtypes=NO_HALF)
lowers_unary(aten.special_modified_bessel_k0.default, kernel=k0, dtypes=NO_HALF)
lowers_unary(aten.special_modified_bessel_k1.default, kernel=k1, dtypes=NO_HALF)
lowers_unary(aten.special_bessel_j0.default, kernel=j0, dtypes=NO_HALF)
lowers_unary(aten.special_bessel_j1.default, kernel=j1, dtypes=NO_HALF)
lowers_unary(aten.special_bessel_y0.default, kernel=y0, dtypes=NO_HALF)
lowers_unary(aten.special_bessel_y1.default, kernel=y1, dtypes=NO_HALF)


@lowers(aten.special_scaled_modified_bessel_k0.default, dtypes=NO_HALF)
def special_scaled_modified_bessel_k0(x: Value, *, out: Spec) -> Value:
    """``exp(x) K₀(x)``."""
    return k0e(hlo.convert(x, out.dtype))


@lowers(aten.special_scaled_modified_bessel_k1.default, dtypes=NO_HALF)
def special_scaled_modified_bessel_k1(x: Value, *, out: Spec) -> Value:
    """``exp(x) K₁(x)``."""
    return k1e(hlo.convert(x, out.dtype))


@lowers(aten.special_spherical_bessel_j0.default, dtypes=NO_HALF)
def special_spherical_bessel_j0(x: Value, *, out: Spec) -> Value:
    """``sin(x) / x``."""
    return spherical_j0(hlo.convert(x, out.dtype))


@lowers(aten.special_airy_ai.default, dtypes=NO_HALF)
def special_airy_ai(x: Value, *, out: Spec) -> Value:
    """Airy function Ai, in float64 because its phase grows like ``|x|`` to the power 3/2."""
    return in_double(airy_ai)(hlo.convert(x, out.dtype))
