"""Contractions over named and listed axes: einsum and tensordot, kept as one operator.

Not here: products of matrices and their batches (``matmul``), into which PyTorch
expands these. They occur whole only in exported graphs.
"""

from __future__ import annotations

from ...dtypes import COPYABLE
from ...hlo import Value
from ...torch_internals.operators import namespace
from ..common import axis_of
from ..composites import Expand, expanded
from ..registry import Spec, lowers

aten = namespace("aten")


@lowers(aten.einsum.default, dtypes=COPYABLE)
def einsum(
    equation: str, tensors: list[Value], path: list[int] | None, expand: Expand, out: Spec
) -> list[Value]:
    """Sum products over the axes that ``equation`` does not keep; ``path`` is the order of contraction."""
    return expanded("einsum", tensors, expand, out, {"equation": equation, "path": path})


@lowers(aten.tensordot.default, dtypes=COPYABLE)
def tensordot(
    self: Value, other: Value, dims_self: list[int], dims_other: list[int], expand: Expand, out: Spec
) -> list[Value]:
    """Sum products over pairs of axes."""
    attributes = {
        "axes": [axis_of(dim, self.rank) for dim in dims_self],
        "other_axes": [axis_of(dim, other.rank) for dim in dims_other],
    }
    return expanded("tensordot", [self, other], expand, out, attributes)
