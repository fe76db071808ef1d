"""Gamma functions: their logarithms and derivatives, Hurwitz's zeta, incomplete gamma functions.

Not here: ``mvlgamma`` and ``special_gammaln``, which PyTorch decomposes.
Tables without a source are Chebyshev fits made for this module with mpmath.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ... import hlo
from ...dtypes import ALL_INTEGRAL, BOOLEAN, FLOAT32, FLOAT64, FLOATING, INT32, REAL, UNSIGNED
from ...hlo import Value
from ...torch_internals.operators import namespace
from ..common import is_infinite
from ..factories import lowers_binary, lowers_unary
from ..gamma_tables import TEMME
from ..precise import in_double
from ..promotion import opmath
from ..registry import Spec, lowers
from ..series import chebyshev, choose, epsilon, polynomial, table
from .special import erfc

aten = namespace("aten")

DTYPES = REAL | UNSIGNED | BOOLEAN
NO_HALF = ALL_INTEGRAL | BOOLEAN | {FLOAT32, FLOAT64}

# ln Γ(1 + z) / z in 2z, |z| ≤ 1/2
_LGAMMA_1 = table("""
    -0.633011426275031011 0.44056755746789629 -0.0578574094499124435 0.0105139736902678112
    -0.0021639890920917151 0.000474440233872465779 -0.000107996445280994281 0.0000252011552995302758
    -5.9860144980268197e-6 1.44106161802930535e-6 -3.50606905757611787e-7 8.60382301676375328e-8
    -2.1265109124786878e-8 5.28777809146361392e-9 -1.32171357521661568e-9 3.31866985544504931e-10
    -8.36590256774621868e-11 2.11633866616069411e-11 -5.37050765379438062e-12 1.36666881005458575e-12
    -3.4866600398851611e-13 8.91562243276770792e-14 -2.28454959350908015e-14 5.86514671522211981e-15
    -1.50840711839686017e-15 3.88561464842830586e-16 -1.00241881866403608e-16 2.58964185653841508e-17
    -6.69867474095857043e-18 1.73483734071310566e-18
""")
# ln Γ(2 + z) / z in 2z, |z| ≤ 1/2
_LGAMMA_2 = table("""
    0.414186124921566735 0.163221700687600649 -0.00865897239412628398 0.000672751572600148517
    -0.0000613955696362823364 6.11006579700357612e-6 -6.41000303382622239e-7 6.96224269276895065e-8
    -7.74724873378821726e-9 8.77407514068723922e-10 -1.00702668698301987e-10 1.16786021306523736e-11
    -1.36568713347449321e-12 1.60793511497115514e-13 -1.90395010884887323e-14 2.26537687678330637e-15
    -2.70665681483189627e-16 3.24566073162619082e-17 -3.90448337845744676e-18
""")
# ψ(x) / (x - root) in 2x - 3, 1 ≤ x ≤ 2
_DIGAMMA = table("""
    0.983570260441566988 -0.227064086334644397 0.033368899023930109 -0.00532007727159654744
    0.000878865693782050533 -0.000147734926506060433 0.0000250605434683591444 -4.27210340299933221e-6
    7.30276927246592305e-7 -1.25028868135595955e-7 2.14250093223594737e-8 -3.67329591856517904e-9
    6.29971723610893091e-10 -1.08059302888326601e-10 1.85373519205363789e-11 -3.18023536582553001e-12
    5.45614757032279418e-13 -9.36099313103643816e-14 1.60606463629507501e-14 -2.75554313774388131e-15
    4.72773617860191139e-16 -8.11148420346509003e-17 1.39170776947415407e-17 -2.3877901082188627e-18
""")
# Stirling's series and its derivative: B₂ₖ / (2k (2k - 1)) and B₂ₖ / 2k
_STIRLING = table("""
    -0.0295506535947712418 0.00641025641025641026 -0.00191752691752691753 0.000841750841750841751
    -0.000595238095238095238 0.000793650793650793651 -0.00277777777777777778 0.0833333333333333333
""")
_DIGAMMA_FAR = table("""
    -0.443259803921568627 0.0833333333333333333 -0.0210927960927960928 0.00757575757575757576
    -0.00416666666666666667 0.00396825396825396825 -0.00833333333333333333 0.0833333333333333333
""")

_DIGAMMA_ROOT = 1.46163213253021240234375
_DIGAMMA_ROOT_REST = 1.243814993891890776e-8
"""The root of digamma as a float32, and the remainder."""


def _lgamma_of_positive(x: Value) -> Value:
    """Factor out the zeros at 1 and 2; use the recurrence beyond 2.5 and Stirling's series beyond 8."""
    small = x < 0.5
    y, product = x, hlo.full_like(x, 1)
    for _ in range(6):
        large = y >= 2.5
        y = hlo.select(large, y - 1.0, y)
        product = hlo.select(large, product * y, product)
    z = hlo.select(small, y, y - 1.0)  # exact, as is y - 2 below
    about_one = z * chebyshev(z * 2.0, _LGAMMA_1)
    about_two = (y - 2.0) * chebyshev((y - 2.0) * 2.0, _LGAMMA_2)
    result = hlo.log(product) + hlo.select(y < 1.5, about_one, about_two)
    result = hlo.select(small, about_one - hlo.log(x), result)
    big = hlo.maximum(x, 8.0)
    inverse = 1.0 / big
    correction = inverse * polynomial(inverse * inverse, _STIRLING)
    stirling = (big - 0.5) * (hlo.log(big) - 1.0) + (correction + (0.5 * math.log(2 * math.pi) - 0.5))
    return choose(result, (x >= 8.0, stirling), (hlo.eq(x, math.inf), x))


def lgamma(x: Value) -> Value:
    """Logarithm of the absolute value of the gamma function."""
    size = hlo.abs_(x)
    positive = _lgamma_of_positive(size)
    # Reflection. Multiplying π by the exact distance to the nearest integer keeps the digits of the sine.
    distance = size - hlo.round_nearest_even(size)
    sine = hlo.abs_(hlo.sine(distance * math.pi))
    reflected = math.log(math.pi) - hlo.log(size * sine) - positive
    tiny = size < 1e-18
    return choose(
        hlo.select(x < 0.0, hlo.select(tiny, positive, reflected), positive),
        ((x <= 0.0) & hlo.eq(distance, 0.0) | is_infinite(x), math.inf),
    )


def digamma(x: Value) -> Value:
    """Derivative of the logarithm of the gamma function; ∓inf at ±0, NaN at negative integers."""
    negative = x < 0.0
    result = _digamma_of_positive(hlo.select(negative, 1.0 - x, x))
    # π / tan(πx) from the exact distance to the nearest integer or half-integer.
    offset = x - hlo.round_nearest_even(x)
    near_half = hlo.abs_(offset) > 0.25
    tangent = hlo.tan(hlo.select(near_half, 0.5 - hlo.abs_(offset), offset) * math.pi)
    cotangent = hlo.select(near_half, tangent * hlo.sign(offset), 1.0 / tangent)
    return choose(
        hlo.select(negative, result - cotangent * math.pi, result),
        (negative & hlo.eq(offset, 0.0), math.nan),
        (hlo.eq(x, 0.0), hlo.select(hlo.signbit(x), hlo.full_like(x, math.inf), -math.inf)),
    )


def _digamma_of_positive(x: Value) -> Value:
    """Shift x to [1, 2] by recurrence and factor out the root; beyond 10 use the asymptotic series."""
    below = x < 1.0
    y, total = hlo.select(below, x + 1.0, x), hlo.select(below, -1.0 / x, hlo.zeros_like(x))
    for _ in range(8):
        large = y > 2.0
        y = hlo.select(large, y - 1.0, y)
        total = hlo.select(large, total + 1.0 / y, total)
    from_root = (y - _DIGAMMA_ROOT) - _DIGAMMA_ROOT_REST
    near = total + from_root * chebyshev(y * 2.0 - 3.0, _DIGAMMA)
    big = hlo.maximum(x, 10.0)
    square = 1.0 / (big * big)
    far = hlo.log(big) - 0.5 / big - square * polynomial(square, _DIGAMMA_FAR)
    return hlo.select(x < 10.0, near, far)


def trigamma(x: Value) -> Value:
    """Second derivative of the logarithm of the gamma function, as ATen/native/Math.h computes it."""
    reflect = x < 0.5
    sine = hlo.sine(x * math.pi)
    total = hlo.select(reflect, -(math.pi**2) / (sine * sine), hlo.zeros_like(x))
    y = hlo.select(reflect, 1.0 - x, x)
    for _ in range(6):
        total = total + 1.0 / (y * y)
        y = y + 1.0
    square = 1.0 / (y * y)
    total = total + (1.0 + 0.5 / y + square * polynomial(square, (1 / 42, -1 / 30, 1 / 6))) / y
    return hlo.select(reflect, -total, total)


# (2k)! / B₂ₖ
_EULER_MACLAURIN = table("""
    12 -720 30240 -1209600 47900160 -1.8924375803183791606e9 7.47242496e10 -2.950130727918164224e12
    1.1646782814350067249e14 -4.5979787224074726105e15 1.8152105401943546773e17 -7.1661652561756670113e18
""")


def zeta(x: Value, q: Value) -> Value:
    """Hurwitz zeta function: terms up to q + n > 9, then the Euler–Maclaurin formula (Cephes, zeta.c)."""
    pole = (q <= 0.0) & hlo.eq(q, hlo.floor(q))
    undefined = (x < 1.0) | (q <= 0.0) & ~pole & hlo.ne(x, hlo.floor(x))
    settled = undefined | pole | hlo.eq(x, 1.0)

    def short(i: Value, a: Value) -> Value:
        return ~settled & ((a <= 9.0) | hlo.broadcast_to(i < 9, a.shape))

    def goes_on(i: Value, a: Value, *_: Value) -> Value:
        return hlo.reduce_or(short(i, a), range(a.rank))

    def step(i: Value, a: Value, total: Value, last: Value) -> list[Value]:
        active = short(i, a)
        after = a + 1.0
        term = hlo.power(after, -x)
        chosen = [
            hlo.select(active, new, old) for new, old in ((after, a), (total + term, total), (term, last))
        ]
        return [i + 1, *chosen]

    start = [hlo.scalar(0, INT32), q, hlo.power(q, -x), hlo.zeros_like(q)]
    _, a, total, last = hlo.while_(goes_on, step, start)
    total = total + last * a / (x - 1.0) - last * 0.5
    factor, power = hlo.full_like(x, 1), last
    for i, divisor in enumerate(_EULER_MACLAURIN):
        factor = factor * (x + 2.0 * i)
        power = power / a
        # For a large x the factor overflows, but by then the power is already zero.
        total = total + hlo.select(hlo.eq(power, 0.0), power, factor * power / divisor)
        factor = factor * (x + (2.0 * i + 1.0))
        power = power / a
    return choose(total, (pole, math.inf), (undefined, math.nan), (hlo.eq(x, 1.0), math.inf))


def _polygamma(x: Value, n: int) -> Value:
    if n == 0:
        return in_double(digamma)(x)
    if n == 1:
        return trigamma(x)
    factorial = float(math.factorial(n)) if n <= 170 else math.inf
    sign = factorial if n % 2 else -factorial
    return in_double(lambda a: zeta(hlo.full_like(a, n + 1), a) * sign)(x)


@lowers(aten.polygamma.default, dtypes=DTYPES)
def polygamma(n: int, self: Value, *, out: Spec) -> Value:
    """Derivative of order n of digamma."""
    return hlo.convert(_polygamma(hlo.convert(self, opmath(out.dtype)), n), out.dtype)


# Incomplete gamma functions ---------------------------------------------------------
# The regions and methods are SciPy's (DLMF 8.7, 8.9, 8.11, 8.12), which ATen uses too.

_LANCZOS_G = 6.024680040776729583740234375
_LANCZOS_NUMERATOR = table("""
    56906521.91347156388090791033559122686859 103794043.1163445451906271053616070238554
    86363131.28813859145546927288977868422342 43338889.32467613834773723740590533316085
    14605578.08768506808414169982791359218571 3481712.15498064590882071018964774556468
    601859.6171681098786670226533699352302507 75999.29304014542649875303443598909137092
    6955.999602515376140356310115515198987526 449.9445569063168119446858607650988409623
    19.51992788247617482847860966235652136208 0.5098416655656676188125178644804694509993
    0.006061842346248906525783753964555936883222
""")
_LANCZOS_DENOMINATOR = table("""
    0 39916800 120543840 150917976 105258076 45995730 13339535 2637558 357423 32670 1925 66 1
""")


def _lanczos(a: Value) -> Value:
    """Lanczos sum, scaled by e^g. For a > 1 it is a ratio in 1/a, so that nothing overflows."""
    inverse = 1.0 / hlo.maximum(a, 1.0)
    large = polynomial(inverse, _LANCZOS_NUMERATOR) / polynomial(inverse, _LANCZOS_DENOMINATOR)
    small = hlo.minimum(a, 1.0)
    by_power = polynomial(small, _LANCZOS_NUMERATOR[::-1]) / polynomial(small, _LANCZOS_DENOMINATOR[::-1])
    return hlo.select(a > 1.0, large, by_power)


def _leading_factor(a: Value, x: Value) -> Value:
    """``xᵃ e⁻ˣ / Γ(a)``."""
    apart = hlo.exponential(a * hlo.log(x) - x - lgamma(a))
    shifted = a + (_LANCZOS_G - 0.5)
    scale = hlo.sqrt(shifted / math.e) / _lanczos(a)
    power = hlo.power(x / shifted, a)
    moderate = hlo.exponential(a - x) * power
    ratio = (x - a - (_LANCZOS_G - 0.5)) / shifted
    huge = hlo.exponential(a * (hlo.log_plus_one(ratio) - ratio) + x * (0.5 - _LANCZOS_G) / shifted)
    # Near the smallest float32, a power would be flushed to zero.
    close = scale * hlo.select((a < 200.0) & (x < 200.0) & (power > 1e-30), moderate, huge)
    return hlo.select(hlo.abs_(a - x) > hlo.abs_(a) * 0.4, apart, close)


_LONGEST = 2000


def _until_settled(
    wanted: Value, step: Callable[..., tuple[Value, Sequence[Value]]], initial: Sequence[Value]
) -> list[Value]:
    """Repeat ``step(i, *state) → (continue, new state)`` until all wanted elements have settled."""

    def goes_on(i: Value, active: Value, *_: Value) -> Value:
        return (i < _LONGEST) & hlo.reduce_or(active, range(active.rank))

    def body(i: Value, active: Value, *state: Value) -> list[Value]:
        count = hlo.broadcast_to(hlo.convert(i + 1, state[0].dtype), active.shape)
        more, new = step(count, *state)
        kept = [hlo.select(active, after, before) for before, after in zip(state, new, strict=True)]
        return [i + 1, active & more, *kept]

    return hlo.while_(goes_on, body, [hlo.scalar(0, INT32), wanted, *initial])[2:]


def _lower_series(a: Value, x: Value, wanted: Value) -> Value:
    """P(a, x) by DLMF 8.11.4."""

    def step(i: Value, term: Value, total: Value) -> tuple[Value, Sequence[Value]]:
        term = term * (x / (a + i))
        total = total + term
        return term > total * (epsilon(x) / 2), (term, total)

    one = hlo.full_like(x, 1)
    total = _until_settled(wanted, step, (one, one))[1]
    return total * _leading_factor(a, x) / a


def _upper_series(a: Value, x: Value, wanted: Value) -> Value:
    """Q(a, x) for small x by DLMF 8.7.3."""

    def step(i: Value, power: Value, total: Value) -> tuple[Value, Sequence[Value]]:
        power = power * (-x / i)
        term = power / (a + i)
        total = total + term
        return hlo.abs_(term) > hlo.abs_(total) * (epsilon(x) / 2), (power, total)

    total = _until_settled(wanted, step, (hlo.full_like(x, 1), hlo.zeros_like(x)))[1]
    log_power = a * hlo.log(x)
    return (
        -hlo.exponential_minus_one(log_power - lgamma(a + 1.0))
        - hlo.exponential(log_power - lgamma(a)) * total
    )


def _upper_fraction(a: Value, x: Value, wanted: Value) -> Value:
    """Q(a, x) by the continued fraction DLMF 8.9.2."""
    big = 2.0 / epsilon(x)

    def step(i: Value, *state: Value) -> tuple[Value, Sequence[Value]]:
        p1, p2, q1, q2, value = state
        z = x - a + (i + 1.0) * 2.0
        numerator = (i + 1.0 - a) * i
        p, q = p1 * z - p2 * numerator, q1 * z - q2 * numerator
        usable = hlo.ne(q, 0.0)
        new = hlo.select(usable, p / q, value)
        change = hlo.select(usable, hlo.abs_((value - new) / new), hlo.full_like(x, 1))
        shrink = hlo.select(hlo.abs_(p) > big, hlo.full_like(x, 1 / big), 1.0)
        return change > epsilon(x) / 2, (p * shrink, p1 * shrink, q * shrink, q1 * shrink, new)

    q1 = (x - a + 2.0) * x
    p1 = x + 1.0
    one = hlo.full_like(x, 1)
    return _until_settled(wanted, step, (p1, one, q1, x, p1 / q1))[4] * _leading_factor(a, x)


def _temme(a: Value, x: Value, sign: float) -> Value:
    """P (``sign`` −1) or Q (``sign`` 1) for large a and x near a (DLMF 8.12.3 and 8.12.4)."""
    sigma = (x - a) / a
    size = hlo.sqrt(hlo.maximum((sigma - hlo.log_plus_one(sigma)) * 2.0, 0.0))
    eta = hlo.select(sigma < 0.0, -size, size)
    near = hlo.clamp(-0.34, eta, 0.34)
    total = hlo.zeros_like(x)
    for k in reversed(range(len(TEMME))):
        kept = [c for n, c in enumerate(TEMME[k]) if abs(c) * 0.34**n * 20.0**-k > epsilon(x) / 32]
        if kept:
            total = total / a + polynomial(near, TEMME[k][len(kept) - 1 :: -1])
    wave = hlo.exponential(a * eta * eta * -0.5) * total / hlo.sqrt(a * (2 * math.pi))
    return erfc(eta * hlo.sqrt(a * 0.5) * sign) * 0.5 + wave * sign


def _incomplete(a: Value, x: Value, *, upper: bool) -> Value:
    distance = hlo.abs_(x - a) / a
    near = (a > 20.0) & (a < 200.0) & (distance < 0.3)
    near = near | ((a > 200.0) & (distance < 4.5 / hlo.sqrt(a)))
    if upper:
        threshold = hlo.select(x <= 0.5, -0.4 / hlo.log(x), x * 1.1)
        lower = hlo.select(x > 1.1, x < a, threshold < a)
    else:
        lower = ~((x > 1.0) & (x > a))
    inside = (a > 0.0) & (x > 0.0) & ~is_infinite(a) & ~is_infinite(x) & ~near
    fraction = x > 1.1
    p = _lower_series(a, x, inside & lower)
    q = hlo.select(
        fraction,
        _upper_fraction(a, x, inside & ~lower & fraction),
        _upper_series(a, x, inside & ~lower & ~fraction),
    )
    result = hlo.select(lower, 1.0 - p, q) if upper else hlo.select(lower, p, 1.0 - q)
    nothing, everything = (0.0, 1.0) if not upper else (1.0, 0.0)
    undefined = (x < 0.0) | (a < 0.0) | hlo.eq(a, 0.0) & ~(x > 0.0) | is_infinite(a) & is_infinite(x)
    return choose(
        result,
        (near, _temme(a, x, 1.0 if upper else -1.0)),
        (is_infinite(x), everything),
        (is_infinite(a), nothing),
        (hlo.eq(x, 0.0), nothing),
        (hlo.eq(a, 0.0), everything),
        (undefined, math.nan),
    )


def igamma(a: Value, x: Value) -> Value:
    """Regularized lower incomplete gamma function P(a, x)."""
    return _incomplete(a, x, upper=False)


def igammac(a: Value, x: Value) -> Value:
    """Regularized upper incomplete gamma function Q(a, x)."""
    return _incomplete(a, x, upper=True)


lowers_unary(aten.lgamma.default, kernel=in_double(lgamma), dtypes=DTYPES, composite="lgamma")
lowers_unary(aten.digamma.default, kernel=in_double(digamma), dtypes=DTYPES, composite="digamma")
lowers_binary(
    aten.special_zeta.default,
    aten.special_zeta.self_scalar,
    aten.special_zeta.other_scalar,
    kernel=in_double(zeta),  # ATen sums float32 in float64 too: with a negative ``q`` digits cancel
    dtypes=NO_HALF,
)
lowers_binary(aten.igamma.default, kernel=in_double(igamma), dtypes=FLOATING)
lowers_binary(aten.igammac.default, kernel=in_double(igammac), dtypes=FLOATING)
