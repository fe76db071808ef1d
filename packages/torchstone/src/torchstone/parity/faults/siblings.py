"""Operators that are easily confused: minimum for maximum, truncation for floor.

A pair is listed if both have the same parameters and a slip of one word turns one into the other.
"""

from __future__ import annotations

import torch

from ...lowering import Lowering, load
from ...torch_internals.operators import overload_name, schema_of

_PAIRS = (
    ("maximum", "minimum"), ("fmax", "fmin"), ("max", "min"), ("amax", "amin"), ("argmax", "argmin"),
    ("cummax", "cummin"), ("sum", "prod"), ("cumsum", "cumprod"),
    ("all", "any"), ("std", "var"), ("std_mean", "var_mean"), ("floor", "trunc"), ("remainder", "fmod"),
    ("lt", "le"), ("gt", "ge"), ("eq", "ne"), ("add", "sub"), ("mul", "div"), ("exp", "exp2"),
    ("sin", "cos"), ("sinh", "cosh"), ("asin", "acos"), ("asinh", "acosh"), ("tan", "tanh"),
    ("sqrt", "rsqrt"), ("erf", "erfc"), ("isposinf", "isneginf"), ("ones", "zeros"),
    ("ones_like", "zeros_like"), ("new_ones", "new_zeros"), ("igamma", "igammac"), ("gcd", "lcm"),
    ("logical_and", "logical_or"), ("bitwise_and", "bitwise_or"), ("silu", "mish"),
    ("bitwise_left_shift", "bitwise_right_shift"), ("_softmax", "_log_softmax"),
    ("i0", "special_i1"), ("special_i0e", "special_i1e"), ("special_bessel_j0", "special_bessel_j1"),
    ("special_bessel_y0", "special_bessel_y1"),
    ("special_modified_bessel_i0", "special_modified_bessel_i1"),
    ("special_modified_bessel_k0", "special_modified_bessel_k1"),
    ("special_chebyshev_polynomial_t", "special_chebyshev_polynomial_u"),
    ("special_chebyshev_polynomial_v", "special_chebyshev_polynomial_w"),
    ("special_hermite_polynomial_h", "special_hermite_polynomial_he"),
    ("reflection_pad1d", "replication_pad1d"), ("reflection_pad2d", "replication_pad2d"),
    ("reflection_pad3d", "replication_pad3d"), ("upsample_bilinear2d", "upsample_bicubic2d"),
    ("upsample_nearest1d", "_upsample_nearest_exact1d"),
    ("upsample_nearest2d", "_upsample_nearest_exact2d"),
    ("upsample_nearest3d", "_upsample_nearest_exact3d"), ("real", "imag"), ("sign", "neg"),
)  # fmt: skip

_ONE_WAY = {
    "ceil": "floor",
    "round": "trunc",
    "log": "log2",
    "log2": "log10",
    "log10": "log",
    "log1p": "log",
    "expm1": "exp",
    "logical_xor": "logical_or",
    "bitwise_xor": "bitwise_or",
    "sigmoid": "tanh",
    "atan": "tan",
    "atanh": "asinh",
    "digamma": "lgamma",
    "lgamma": "digamma",
}

INSTEAD = {**dict(_PAIRS), **{two: one for one, two in _PAIRS}, **_ONE_WAY}
"""For each operator, the one that it is easily confused with."""


def sibling_of(lowering: Lowering) -> Lowering | None:
    """Return the lowering of the operator confused with this one; None unless the parameters are the same."""
    overload = lowering.overload
    namespace, _, packet = schema_of(overload).name.partition("::")
    wanted = INSTEAD.get(packet)
    if wanted is None:
        return None
    other = getattr(getattr(getattr(torch.ops, namespace), wanted, None), overload_name(overload), None)
    found = load().get(other)
    if found is None or found.parameters != lowering.parameters:
        return None
    return found if found.special <= lowering.special | {"out", "meta"} else None
