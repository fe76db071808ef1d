"""Numbers that are arguments of a program rather than part of it, so that one program serves every value.

This lists the operators whose lowering only computes with the number, so that a 0-d int64 or float64 value
gives exactly the result of a constant. A number that decides what is computed (such as an exponent, or one
that sets the dtype of a comparison) belongs to the key instead.
"""

from __future__ import annotations

_NAMED: dict[str, tuple[int | str, ...]] = {
    "add.Tensor": (1, "alpha"),
    "add_.Tensor": (1, "alpha"),
    "sub.Tensor": (1, "alpha"),
    "sub_.Tensor": (1, "alpha"),
    "mul.Tensor": (1,),
    "mul_.Tensor": (1,),
    "div.Tensor": (1,),
    "div_.Tensor": (1,),
    "add.Scalar": (1, "alpha"),
    "add_.Scalar": (1, "alpha"),
    "sub.Scalar": (1, "alpha"),
    "sub_.Scalar": (1, "alpha"),
    "mul.Scalar": (1,),
    "mul_.Scalar": (1,),
    "div.Scalar": (1,),
    "div_.Scalar": (1,),
    "addcmul": ("value",),
    "addcmul_": ("value",),
    "addcdiv": ("value",),
    "addcdiv_": ("value",),
    "lerp.Scalar": (2,),
    "lerp_.Scalar": (2,),
}


def of(operator: str) -> frozenset[int | str]:
    """Return the positions and names of an operator's arguments that may be numbers of any value."""
    return frozenset(_NAMED.get(operator, ()))
