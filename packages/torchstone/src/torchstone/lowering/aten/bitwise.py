"""Bitwise logic and shifts of integers (and bools).

Not here: logical operators on truth values (``comparison``).
"""

from __future__ import annotations

from typing import Any

from ... import hlo
from ...dtypes import ALL_INTEGRAL, BOOL, BOOLEAN
from ...hlo import Value
from ...torch_internals.operators import namespace
from ..factories import lowers_binary, lowers_unary

aten = namespace("aten")

_BITS = ALL_INTEGRAL | BOOLEAN


def _and(a: Value, b: Value) -> Value:
    """``self & other``."""
    return a & b


def _or(a: Value, b: Value) -> Value:
    """``self | other``."""
    return a | b


def _xor(a: Value, b: Value) -> Value:
    """``self ^ other``."""
    return a ^ b


def _fits(x: Value, amount: Value) -> Value:
    """True where ``amount`` is at least 0 and less than the bit width, so that at least one bit remains."""
    return (amount >= 0) & (amount < x.dtype.bits)


def _shift_left(x: Value, amount: Value) -> Value:
    """``self << other``; 0 where the amount is negative or at least the bit width."""
    return hlo.select(_fits(x, amount), hlo.shift_left(x, amount), 0)


def _shift_right(x: Value, amount: Value) -> Value:
    """Arithmetic ``self >> other``; an amount out of range shifts out all bits."""
    if x.dtype.is_unsigned:
        return hlo.select(_fits(x, amount), hlo.shift_right_logical(x, amount), 0)
    amount = hlo.select(_fits(x, amount), amount, x.dtype.bits - 1)
    return hlo.shift_right_arithmetic(x, amount)


def _family(packet: Any) -> tuple[Any, ...]:
    return packet.Tensor, packet.Scalar, packet.Scalar_Tensor


lowers_binary(*_family(aten.bitwise_and), kernel=_and, dtypes=_BITS)
lowers_binary(*_family(aten.bitwise_or), kernel=_or, dtypes=_BITS)
lowers_binary(*_family(aten.bitwise_xor), kernel=_xor, dtypes=_BITS)
lowers_unary(aten.bitwise_not.default, kernel=hlo.logical_not, dtypes=_BITS)
_SHIFTS = (
    (aten.bitwise_left_shift, aten.__lshift__, _shift_left),
    (aten.bitwise_right_shift, aten.__rshift__, _shift_right),
)

for _named, _dunder, _kernel in _SHIFTS:
    lowers_binary(_named.Tensor, _named.Tensor_Scalar, _named.Scalar_Tensor, kernel=_kernel, dtypes=_BITS)
    lowers_binary(
        _dunder.Tensor,
        _dunder.Scalar,
        kernel=_kernel,
        dtypes=ALL_INTEGRAL,
        gaps={BOOL: "PyTorch's shape function of this operator takes integers only"},
    )
