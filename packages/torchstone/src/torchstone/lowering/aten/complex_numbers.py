"""Complex numbers: building them, taking them apart, conjugation and argument.

Not here: arithmetic and transcendental functions, which take complex operands in
their own families. There is no complex dtype with 16-bit parts.
"""

from __future__ import annotations

import math

from ... import hlo
from ...dtypes import COMPLEX, COPYABLE, FLOAT16, FLOAT32, FLOAT64, NUMERIC, STANDARD, UNSIGNED
from ...hlo import Value
from ...torch_internals.operators import namespace
from ..common import cast
from ..composites import composed_whole
from ..factories import lowers_unary
from ..promotion import broadcast, opmath
from ..registry import Spec, lowers

aten = namespace("aten")

_PARTS = frozenset({FLOAT32, FLOAT64})
_GAPS = {FLOAT16: "the result would be complex32, which StableHLO does not have"}


@lowers(aten.complex.default, dtypes=_PARTS, gaps=_GAPS)
def complex_(real: Value, imag: Value, *, out: Spec) -> Value:
    """``real + i imag``."""
    return hlo.complex_(*broadcast((real, imag), out.dtype.real, out.shape))


@lowers(aten.polar.default, dtypes=_PARTS)
def polar(abs: Value, angle: Value, *, out: Spec) -> Value:
    """``abs * (cos(angle) + i sin(angle))``."""
    size, phase = broadcast((abs, angle), out.dtype.real, out.shape)
    return hlo.complex_(size * hlo.cosine(phase), size * hlo.sine(phase))


@lowers(aten.view_as_real.default, aten.view_as_real_copy.default, dtypes=COMPLEX)
def view_as_real(self: Value, out: Spec) -> Value:
    """Real and imaginary parts along a new last axis of size 2."""

    def kernel(x: Value) -> Value:
        parts = (hlo.real(x), hlo.imag(x))
        return hlo.concatenate([hlo.expand_dims(part, [-1]) for part in parts], axis=x.rank)

    return composed_whole("view_as_real", [self], kernel, out, {})


@lowers(aten.view_as_complex.default, aten.view_as_complex_copy.default, dtypes=_PARTS, gaps=_GAPS)
def view_as_complex(self: Value, out: Spec) -> Value:
    """The last axis, of size 2, as real and imaginary parts."""
    axis = self.rank - 1

    def kernel(x: Value) -> Value:
        re, im = (hlo.squeeze(hlo.slice_axis(x, axis, i, i + 1), [axis]) for i in range(2))
        return hlo.complex_(re, im)

    return composed_whole("view_as_complex", [self], kernel, out, {})


@lowers(aten.real.default, dtypes=COPYABLE)
def real(self: Value) -> Value:
    """The real part."""
    return hlo.real(self)


@lowers(aten.imag.default, dtypes=COMPLEX)
def imag(self: Value) -> Value:
    """The imaginary part."""
    return hlo.imag(self)


lowers_unary(
    aten._conj.default,
    aten._conj_copy.default,
    aten._conj_physical.default,
    aten.conj_physical.default,
    kernel=hlo.conj,
    dtypes=COPYABLE,
)
lowers_unary(
    aten._neg_view.default,
    aten._neg_view_copy.default,
    kernel=hlo.negate,
    dtypes=NUMERIC,
    gaps=dict.fromkeys(COPYABLE - NUMERIC, "PyTorch marks such a tensor as negative but cannot read it"),
)


@lowers(aten.angle.default, dtypes=STANDARD | UNSIGNED)
def angle(self: Value, out: Spec) -> Value:
    """The argument of a complex number. For a real number it is 0 or π, and NaN for NaN."""
    if self.dtype.is_complex:
        return hlo.atan2(hlo.imag(self), hlo.real(self))
    x = cast(self, opmath(out.dtype))
    side = hlo.select(x < 0, hlo.full_like(x, math.pi), 0.0)
    return hlo.convert(hlo.select(hlo.is_nan(x), x, side), out.dtype)
