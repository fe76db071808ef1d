"""Numbers that are arguments of a program, not part of it: one program serves every value.

Named here are operators whose lowering only computes with the number, so that a 0-d value of int64 or
float64 gives the very result of a constant. Where a number decides what is computed (an exponent, a dtype
that comparisons are done in) it belongs to the key.
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
    """The positions and names of the arguments of ``add.Tensor`` that may be numbers of any value."""
    return frozenset(_NAMED.get(operator, ()))
