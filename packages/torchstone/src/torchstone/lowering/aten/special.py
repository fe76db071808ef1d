"""The error function and its relatives: the normal distribution function, and the inverses of both.

Not here: gamma functions (``gamma``), Bessel functions (``bessel``), orthogonal
polynomials (``polynomials``). ``logit``, ``sinc``, ``special_entr`` and ``xlogy``
need no lowering: PyTorch decomposes them.
"""

from __future__ import annotations

import math

from ... import hlo
from ...dtypes import BOOLEAN, FLOAT64, REAL, UNSIGNED
from ...hlo import Value
from ...torch_internals.operators import namespace
from ..factories import lowers_unary
from ..series import chebyshev, choose, polynomial, table

aten = namespace("aten")

DTYPES = REAL | UNSIGNED | BOOLEAN

# (1 + 2x) exp(x²) erfc(x) in (x - 3.75) / (x + 3.75): Shepherd and Laframboise (1981), fitted with mpmath
_ERFCX = table("""
    1.1775789345674017541 -0.0045900545806464773309 -0.084249133366517915584 0.059209939998191890498
    -0.026658668435305752277 0.0090749976707052650939 -0.0024131635404176081909 0.00049077583652580863229
    -0.000069169733025012063671 4.1390279860730101675e-6 7.7403830661984906686e-7 -2.1886401049234395661e-7
    1.0764999465670910377e-8 4.5219598112182868979e-9 -7.7544002088313511065e-10 -6.3180883408866844944e-11
    2.8687950109306698981e-11 1.945586854577734723e-13 -9.6546967484334389059e-13 3.2525481481487398415e-14
    3.3478119482068053878e-14 -1.8645628804193131015e-15 -1.2507950530688647085e-15 7.418235256624043463e-17
    5.0681489047961113168e-17 -2.2370566594359995974e-18 -2.187342944303017665e-18
""")

# ln erfc(x) on [3, 4], four digits
_LOG_ERFC = (-0.9661836478013172, -0.5035210290711291, -0.514386015774093)

# Normal quantiles (Cephes, ndtri.c): near 1/2 in (p - 1/2)²; else in 1/z, z = √(-2 ln p), below and above 8
_NDTRI_P0 = table("""
    -5.99633501014107895267e1 9.80010754185999661536e1 -5.66762857469070293439e1 1.39312609387279679503e1
    -1.23916583867381258016
""")
_NDTRI_Q0 = table("""
    1.0 1.95448858338141759834 4.67627912898881538453 8.63602421390890590575e1
    -2.25462687854119370527e2 2.00260212380060660359e2 -8.20372256168333339912e1 1.59056225126211695515e1
    -1.18331621121330003142
""")
_NDTRI_P1 = table("""
    4.05544892305962419923 3.15251094599893866154e1 5.71628192246421288162e1 4.40805073893200834700e1
    1.46849561928858024014e1 2.18663306850790267539 -1.40256079171354495875e-1
    -3.50424626827848203418e-2 -8.57456785154685413611e-4
""")
_NDTRI_Q1 = table("""
    1.0 1.57799883256466749731e1 4.53907635128879210584e1 4.13172038254672030440e1
    1.50425385692907503408e1 2.50464946208309415979 -1.42182922854787788574e-1
    -3.80806407691578277194e-2 -9.33259480895457427372e-4
""")
_NDTRI_P2 = table("""
    3.23774891776946035970 6.91522889068984211695 3.93881025292474443415 1.33303460815807542389
    2.01485389549179081538e-1 1.23716634817820021358e-2 3.01581553508235416007e-4
    2.65806974686737550832e-6 6.23974539184983293730e-9
""")
_NDTRI_Q2 = table("""
    1.0 6.02427039364742014255 3.67983563856160859403 1.37702099489081330271
    2.16236993594496635890e-1 1.34204006088543189037e-2 3.28014464682127739104e-4
    2.89247864745380683936e-6 6.79019408009981274425e-9
""")


def _exponential_of_square(x: Value, sign: float = 1.0) -> Value:
    """``exp(sign x²)`` without the rounding error of x² (``sign`` is a power of two, or minus one).

    x is first rounded to so few digits that its square is exact.
    """
    short = hlo.reduce_precision(x, *((11, 25) if x.dtype is FLOAT64 else (8, 11)))
    rest = hlo.exponential((x - short) * (x + short) * sign)
    result = hlo.exponential(short * short * sign)
    return result * hlo.select(hlo.abs_(x) < 1e2, rest, hlo.full_like(x, 1))


def _scaled_tail(x: Value) -> Value:
    """``exp(x²) erfc(x)`` for x ≥ 0; wrong by a few ULPs if x is small."""
    t = hlo.select(x < 1e30, (x - 3.75) / (x + 3.75), hlo.full_like(x, 1))  # not ∞/∞
    return chebyshev(t, _ERFCX) / (x + x + 1.0)


def erfcx(x: Value) -> Value:
    """``exp(x²) erfc(x)``."""
    square, tail = _exponential_of_square(x), _scaled_tail(hlo.abs_(x))
    return choose(square * (1.0 - hlo.erf(x)), (x > 0.5, tail), (x < -0.5, square * 2.0 - tail))


def erfc(x: Value) -> Value:
    """Complementary error function."""
    size = hlo.abs_(x)
    tail = _exponential_of_square(size, -1.0) * _scaled_tail(size)
    return choose(1.0 - hlo.erf(x), (x > 0.5, tail), (x < -0.5, 2.0 - tail))


def erf(x: Value) -> Value:
    """Error function."""
    if x.dtype is FLOAT64:
        return hlo.erf(x)
    # XLA expands CHLO's erf to a float32 approximation that loses up to 5 ULP beyond 3. The remainder
    # there needs only three digits.
    size = hlo.abs_(x)
    near_one = 1.0 - hlo.exponential(polynomial(size, _LOG_ERFC))
    return hlo.select(size > 3.0, hlo.sign(x) * near_one, hlo.erf(x))


def erfinv(y: Value) -> Value:
    """Inverse error function: CHLO's approximation and one Newton step on its complement."""
    size = hlo.abs_(y)
    x = hlo.abs_(hlo.erf_inv(y))
    inside = hlo.minimum(x, 7.0)  # no Newton step at ±1
    excess = _scaled_tail(inside) - (1.0 - size) * _exponential_of_square(inside)
    refined = x + excess * (math.sqrt(math.pi) / 2)
    return hlo.sign(y) * hlo.select((size > 0.5) & (size < 1.0), refined, x)


def ndtri(p: Value) -> Value:
    """Quantile function of the normal distribution."""
    tail = math.exp(-2.0)
    upper = p > 1.0 - tail
    q = hlo.select(upper, 1.0 - p, p)
    centred = q - 0.5
    square = centred * centred
    middle = centred + centred * (square * polynomial(square, _NDTRI_P0) / polynomial(square, _NDTRI_Q0))
    x = hlo.sqrt(hlo.log(q) * -2.0)
    z = 1.0 / x
    near = polynomial(z, _NDTRI_P1) / polynomial(z, _NDTRI_Q1)
    far = polynomial(z, _NDTRI_P2) / polynomial(z, _NDTRI_Q2)
    x = x - hlo.log(x) / x - z * hlo.select(x < 8.0, near, far)
    return choose(
        hlo.select(upper, x, -x),
        (q > tail, middle * math.sqrt(2 * math.pi)),
        (hlo.eq(p, 0.0), -math.inf),
        (hlo.eq(p, 1.0), math.inf),
        ((p < 0.0) | (p > 1.0), math.nan),
    )


def ndtr(x: Value) -> Value:
    """Distribution function of the normal distribution."""
    t = x * math.sqrt(0.5)
    # Start from the operand itself: squaring t would amplify its rounding error.
    tail = _exponential_of_square(hlo.abs_(x), -0.5) * _scaled_tail(hlo.abs_(t)) * 0.5
    return choose(hlo.erf(t) * 0.5 + 0.5, (x > 0.7, 1.0 - tail), (x < -0.7, tail))


def log_ndtr(x: Value) -> Value:
    """Logarithm of the normal distribution function."""
    t = x * math.sqrt(0.5)
    tail = hlo.log(erfcx(-t) * 0.5) - t * t
    return hlo.select(x < -1.0, tail, hlo.log_plus_one(erfc(t) * -0.5))


lowers_unary(aten.erf.default, kernel=erf, dtypes=DTYPES)
lowers_unary(aten.erfc.default, kernel=erfc, dtypes=DTYPES)
lowers_unary(aten.erfinv.default, kernel=erfinv, dtypes=DTYPES)
lowers_unary(aten.special_erfcx.default, kernel=erfcx, dtypes=DTYPES)
lowers_unary(aten.special_ndtr.default, kernel=ndtr, dtypes=DTYPES)
lowers_unary(aten.special_ndtri.default, kernel=ndtri, dtypes=DTYPES)
lowers_unary(aten.special_log_ndtr.default, kernel=log_ndtr, dtypes=DTYPES)
