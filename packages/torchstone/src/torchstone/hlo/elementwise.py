"""Elementwise operations of StableHLO and CHLO, and conversions between dtypes.

Unary functions keep shape and dtype. Binary functions need equal shapes and dtypes
(a Python number takes those of the other operand). For the meaning of each, see the
StableHLO specification, section "Ops". CHLO functions become composites, or the
consumer legalizes them.
"""

from __future__ import annotations

from collections.abc import Callable

from ..dtypes import BOOL, INT8, DType
from ..errors import LoweringBug
from ._mlir import chlo, ir, stablehlo
from .dimensions import assume_same_shape
from .value import Number, Value, binary, compare, full_like, operands, require_same, tensor_type, unary

Unary = Callable[[Value], Value]
Binary = Callable[[Value | Number, Value | Number], Value]


def _unary(name: str, dialect: object = stablehlo) -> Unary:
    operation = getattr(dialect, name)

    def function(x: Value) -> Value:
        return unary(operation, x)

    function.__name__ = function.__qualname__ = name.rstrip("_")
    function.__doc__ = f"``{name.rstrip('_')}`` of every element."
    return function


def _binary(name: str, dialect: object = stablehlo) -> Binary:
    operation = getattr(dialect, name)

    def function(a: Value | Number, b: Value | Number) -> Value:
        return binary(operation, a, b)

    function.__name__ = function.__qualname__ = name.rstrip("_")
    function.__doc__ = f"``{name.rstrip('_')}`` of corresponding elements."
    return function


cbrt = _unary("cbrt")
ceil = _unary("ceil")
cosine = _unary("cosine")
count_leading_zeros = _unary("count_leading_zeros")
exponential = _unary("exponential")
exponential_minus_one = _unary("exponential_minus_one")
floor = _unary("floor")
log = _unary("log")
log_plus_one = _unary("log_plus_one")
logistic = _unary("logistic")
negate = _unary("negate")
logical_not = _unary("not_")
popcnt = _unary("popcnt")
round_nearest_afz = _unary("round_nearest_afz")
round_nearest_even = _unary("round_nearest_even")
rsqrt = _unary("rsqrt")
sign = _unary("sign")
sine = _unary("sine")
sqrt = _unary("sqrt")
tan = _unary("tan")
tanh = _unary("tanh")

acos = _unary("acos", chlo)
acosh = _unary("acosh", chlo)
asin = _unary("asin", chlo)
asinh = _unary("asinh", chlo)
atan = _unary("atan", chlo)
atanh = _unary("atanh", chlo)
bessel_i1e = _unary("bessel_i1e", chlo)
cosh = _unary("cosh", chlo)
digamma = _unary("digamma", chlo)
erf = _unary("erf", chlo)
erf_inv = _unary("erf_inv", chlo)
erfc = _unary("erfc", chlo)
lgamma = _unary("lgamma", chlo)
sinh = _unary("sinh", chlo)

atan2 = _binary("atan2")
divide = _binary("divide")
maximum = _binary("maximum")
minimum = _binary("minimum")
next_after = _binary("next_after", chlo)
power = _binary("power")
remainder = _binary("remainder")
shift_left = _binary("shift_left")
shift_right_arithmetic = _binary("shift_right_arithmetic")
shift_right_logical = _binary("shift_right_logical")


def eq(a: Value | Number, b: Value | Number) -> Value:
    """``a == b`` elementwise, as bool."""
    return compare("EQ", a, b)


def ne(a: Value | Number, b: Value | Number) -> Value:
    """``a != b`` elementwise, as bool (NaN differs from everything)."""
    return compare("NE", a, b)


def optimization_barrier(x: Value) -> Value:
    """Return ``x`` behind a barrier: the compiler fuses nothing before it with anything after it."""
    return Value(stablehlo.OptimizationBarrierOp([x.ir]).results[0], x.shape, x.dtype)


def abs_(x: Value) -> Value:
    """Absolute value; a complex value gives its real magnitude."""
    if x.dtype.is_unsigned:
        return x
    return Value(stablehlo.abs(x.ir), x.shape, x.dtype.real)


def is_finite(x: Value) -> Value:
    """True where a floating-point element is neither infinite nor NaN."""
    return Value(stablehlo.is_finite(x.ir), x.shape, BOOL)


def is_nan(x: Value) -> Value:
    """True where a floating-point or complex element is NaN."""
    return ne(x, x)


def select(condition: Value, on_true: Value | Number, on_false: Value | Number) -> Value:
    """``on_true`` where ``condition`` (bool, same shape) holds, else ``on_false``."""
    if not isinstance(on_true, Value) and not isinstance(on_false, Value):
        raise LoweringBug("select needs at least one branch that is a value")
    x, y = operands(on_true, on_false)
    if condition.dtype is not BOOL or not assume_same_shape(condition.shape, x.shape):
        raise LoweringBug(f"select condition {condition!r} does not fit {x!r}")
    return Value(stablehlo.select(condition.ir, x.ir, y.ir), x.shape, x.dtype)


def clamp(low: Value | Number, x: Value, high: Value | Number) -> Value:
    """``min(max(x, low), high)``; NaN in ``x`` stays NaN."""
    return minimum(maximum(x, low), high)


def complex_(re: Value, im: Value) -> Value:
    """A complex value of two float32 or float64 parts."""
    require_same(re, im)
    return Value(stablehlo.complex(re.ir, im.ir), re.shape, re.dtype.complex)


def real(x: Value) -> Value:
    """Real part (the value itself if it is real)."""
    return Value(stablehlo.real(x.ir), x.shape, x.dtype.real) if x.dtype.is_complex else x


def imag(x: Value) -> Value:
    """Imaginary part (zeros for a real value)."""
    return Value(stablehlo.imag(x.ir), x.shape, x.dtype.real) if x.dtype.is_complex else full_like(x, 0)


def conj(x: Value) -> Value:
    """Complex conjugate (the value itself if it is real)."""
    return complex_(real(x), -imag(x)) if x.dtype.is_complex else x


def convert(x: Value, dtype: DType) -> Value:
    """Convert ``x`` to another dtype.

    To bool: ``x != 0``. Complex to real drops the imaginary part. Floating point to
    integer truncates toward zero; out of range, the result depends on the engine.
    """
    if x.dtype is dtype:
        return x
    if dtype.is_bool:
        return ne(x, 0)
    if dtype.is_complex:
        if x.dtype.is_complex:
            return complex_(convert(real(x), dtype.real), convert(imag(x), dtype.real))
        part = convert(x, dtype.real)
        return complex_(part, full_like(part, 0))
    if x.dtype.is_bool and dtype.is_floating:
        # XLA rewrites y * convert(bool) to select(bool, y, 0), which loses NaN, infinity and −0.0 of y.
        x = convert(x, INT8)
    x = real(x)
    return Value(stablehlo.convert(tensor_type(x.shape, dtype), x.ir), x.shape, dtype)


def reduce_precision(x: Value, exponent_bits: int, mantissa_bits: int) -> Value:
    """``x`` rounded to a narrower float format, kept in its own dtype."""
    attribute = ir.IntegerType.get_signless(32)
    result = stablehlo.reduce_precision(
        x.ir,
        exponent_bits=ir.IntegerAttr.get(attribute, exponent_bits),
        mantissa_bits=ir.IntegerAttr.get(attribute, mantissa_bits),
    )
    return Value(result, x.shape, x.dtype)
