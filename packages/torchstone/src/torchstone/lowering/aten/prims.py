"""Prims that PyTorch's decompositions produce and that belong to no other family."""

from __future__ import annotations

from typing import Any

from ... import hlo
from ...dtypes import BOOL, BOOLEAN, FLOAT64, STANDARD, UINT8
from ...hlo import Value
from ...torch_internals.decompositions import inductor_prims
from ...torch_internals.operators import namespace
from ..promotion import broadcast
from ..registry import Spec, lowers

inductor_prims.get()
prims = namespace("prims")


@lowers(prims.fma.default, dtypes=STANDARD)
def fma(a: Any, b: Any, c: Any, out: Spec) -> Value:
    """``a * b + c``; real floats are computed in float64, so that only the result is rounded."""
    x, y, z = broadcast((a, b, c), FLOAT64 if out.dtype.is_floating else out.dtype, out.shape)
    return hlo.convert((x & y) | z if out.dtype.is_bool else x * y + z, out.dtype)


@lowers(
    prims.where.default,
    dtypes=BOOLEAN,
    gaps={UINT8: "no PyTorch decomposition selects by it: aten.where accepts only bool conditions"},
)
def where(pred: Value, a: Any, b: Any, *, out: Spec) -> Value:
    """``a`` where ``pred`` holds, else ``b``; decompositions written in prims produce it."""
    return hlo.select(*broadcast((pred,), BOOL, out.shape), *broadcast((a, b), out.dtype, out.shape))
