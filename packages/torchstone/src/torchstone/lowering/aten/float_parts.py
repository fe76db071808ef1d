"""Sign, mantissa and exponent of floating-point numbers.

Not here: rounding (``elementary``), classification
(``comparison``).
"""

from __future__ import annotations

from ... import hlo
from ...dtypes import ALL_INTEGRAL, BOOLEAN, FLOATING
from ...hlo import Value
from ...torch_internals.operators import namespace
from ..common import copysign, split
from ..factories import lowers_binary
from ..promotion import broadcast, opmath
from ..registry import Spec, lowers

aten = namespace("aten")

_REAL = ALL_INTEGRAL | FLOATING | BOOLEAN

lowers_binary(
    aten.copysign.Tensor,
    aten.copysign.Scalar,
    kernel=copysign,
    dtypes=_REAL,
)


@lowers(aten.nextafter.default, dtypes=_REAL)
def nextafter(self: Value, other: Value, *, out: Spec) -> Value:
    """The next number of the dtype after ``self`` in the direction of ``other``."""
    return hlo.next_after(*broadcast((self, other), out.dtype, out.shape))


@lowers(aten.frexp.Tensor, dtypes=FLOATING)
def frexp(self: Value, *, out: tuple[Spec, Spec]) -> tuple[Value, Value]:
    """Mantissa with 0.5 ≤ |m| < 1, and int32 exponent. Zero, infinity and NaN are their own mantissa."""
    mantissa, exponent = split(hlo.convert(self, opmath(self.dtype)))
    return hlo.convert(mantissa, out[0].dtype), hlo.convert(exponent, out[1].dtype)
