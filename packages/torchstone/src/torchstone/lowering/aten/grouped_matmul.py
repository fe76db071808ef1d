"""Products of groups of rows, columns or inner elements, delimited by run-time offsets.

A loop goes through the groups. It multiplies each one over the full size and masks
the rest, which works on every backend.

Not here: batches of equal sizes (``matmul``).
"""

from __future__ import annotations

from ... import hlo
from ...dtypes import BFLOAT16, FLOAT16, FLOAT32, INT32
from ...hlo import Value
from ...torch_internals.operators import namespace
from ..registry import Spec, lowers
from .matmul import product

aten = namespace("aten")


@lowers(
    aten._grouped_mm.default,
    dtypes=frozenset({BFLOAT16}),
    gaps=dict.fromkeys((FLOAT16, FLOAT32), "PyTorch's own shape function takes bfloat16 only"),
    ignores=("bias", "out_dtype"),  # PyTorch rejects a bias and any dtype other than the operands'
)
def _grouped_mm(self: Value, mat2: Value, offs: Value | None = None, *, out: Spec) -> Value:
    """``self @ mat2`` for each group; ``offs`` holds the end of each group.

    The ranks of the operands determine the groups. 2-d by 3-d: groups of rows. 3-d by 2-d:
    groups of columns. 2-d by 2-d: groups of inner elements, with one result matrix per group.
    3-d by 3-d: one matrix per group.
    """
    if offs is None:
        return hlo.convert(product(self, mat2), out.dtype)
    groups = offs.shape[0]
    ends = hlo.convert(offs, INT32)
    if self.rank == 2 and mat2.rank == 2:
        return hlo.convert(_inner_groups(self, mat2, ends), out.dtype)
    axis = 0 if self.rank == 2 else 1

    def step(group: Value, total: Value) -> list[Value]:
        left = self if self.rank == 2 else _matrix(self, group)
        right = mat2 if mat2.rank == 2 else _matrix(mat2, group)
        member = hlo.broadcast_in_dim(_members(ends, group, out.shape[axis]), out.shape, [axis])
        return [hlo.select(member, product(left, right), total)]

    (total,) = hlo.fori(hlo.scalar(groups, INT32), step, [hlo.full(out.shape, 0, FLOAT32)])
    return hlo.convert(total, out.dtype)


def _inner_groups(a: Value, b: Value, ends: Value) -> Value:
    shape = (ends.shape[0], a.shape[0], b.shape[1])

    def step(group: Value, total: Value) -> list[Value]:
        member = _members(ends, group, a.shape[1])
        left = hlo.select(hlo.broadcast_in_dim(member, a.shape, [1]), a, 0)
        right = hlo.select(hlo.broadcast_in_dim(member, b.shape, [0]), b, 0)
        zero = hlo.scalar(0, INT32)
        part = hlo.expand_dims(product(left, right), [0])
        return [hlo.dynamic_update_slice(total, part, [group, zero, zero])]

    return hlo.fori(hlo.scalar(shape[0], INT32), step, [hlo.full(shape, 0, FLOAT32)])[0]


def _matrix(stack: Value, group: Value) -> Value:
    zero = hlo.scalar(0, INT32)
    return hlo.squeeze(hlo.dynamic_slice(stack, [group, zero, zero], [1, *stack.shape[1:]]), [0])


def _members(ends: Value, group: Value, size: hlo.Dim) -> Value:
    """Return bools that tell which of ``size`` positions belong to ``group``."""
    ends = hlo.pad(ends, 0, [1], [0])
    start = hlo.dynamic_slice(ends, [group], [1])
    stop = hlo.dynamic_slice(ends, [group + 1], [1])
    position = hlo.iota((size,), 0, INT32)
    return (position >= hlo.broadcast_to(start, (size,))) & (position < hlo.broadcast_to(stop, (size,)))
