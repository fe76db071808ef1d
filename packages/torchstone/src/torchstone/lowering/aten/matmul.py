"""Matrix and vector products: dense, batched, and scaled or added to another tensor.

Integers wrap around exactly; 16-bit floats accumulate in float32 and are
rounded once, after everything that the operator adds or scales.

Not here: products of low-precision formats (``scaled_matmul``),
convolutions, factorizations and solvers, attention.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ... import hlo
from ...dtypes import (
    COMPLEX64,
    COMPLEX128,
    FLOAT8,
    FLOAT8_E8M0FNU,
    FLOAT32,
    FLOAT64,
    STANDARD,
    UNSIGNED,
    DType,
)
from ...hlo import Value
from ...torch_internals.operators import namespace
from ..common import axis_of, cast, is_empty
from ..misfits import other_dtypes
from ..promotion import opmath
from ..registry import Spec, lowers
from .arithmetic import scaled

aten = namespace("aten")

DTYPES = STANDARD | UNSIGNED | FLOAT8 - {FLOAT8_E8M0FNU}
"""The supported dtypes. Eager accepts bool and the wider unsigned integers only for empty sums."""

REAL_BLAS, COMPLEX_BLAS = frozenset({FLOAT32, FLOAT64}), frozenset({COMPLEX64, COMPLEX128})
"""Dtypes of matrices that eager multiplies by a BLAS library."""


def product(a: Value, b: Value) -> Value:
    """``a @ b`` with equal batch axes, in the op-math dtype of the operands."""
    lead = list(range(a.rank - 2))
    return contracted(a, b, ([a.rank - 1], [b.rank - 2]), (lead, lead))


def contracted(
    a: Value, b: Value, contract: tuple[list[int], list[int]], batch: tuple[list[int], list[int]] = ([], [])
) -> Value:
    """``hlo.dot_general`` in the op-math dtype of the operands."""
    if a.dtype in FLOAT8:  # some engines cannot multiply these
        a, b = hlo.convert(a, FLOAT32), hlo.convert(b, FLOAT32)
    return hlo.dot_general(a, b, contract=contract, batch=batch, accumulate=opmath(a.dtype))


def combined(self: Value, added: Value, beta: Any, alpha: Any, out: Spec) -> Value:
    """``beta * self + alpha * added``, with ``self`` broadcast to ``out`` and ``added`` in the op-math dtype.

    If ``beta`` is zero, ``self`` is not read, so NaNs in it are ignored.
    """
    result = scaled(added, alpha)
    if beta != 0:
        result = scaled(hlo.broadcast_to(hlo.convert(self, added.dtype), out.shape), beta) + result
    return cast(result, out.dtype)


def _read(added: Value, alpha: Any, factor: Value, dtypes: Collection[DType]) -> Value:
    """Return ``added``, or zeros if ``alpha`` is 0 and eager's kernels, for ``dtypes``, skip the product."""
    return hlo.full(added.shape, 0, added.dtype) if alpha == 0 and factor.dtype in dtypes else added


def _factor(alpha: Any, factor: Value) -> Any:
    """Return ``alpha``, or 0 if the factor is empty: eager then adds nothing, even if ``alpha`` is NaN."""
    return 0 if is_empty(factor.shape) else alpha


# Plain products --------------------------------------------------------------------


@lowers(aten.mm.default, aten.bmm.default, dtypes=DTYPES)
def mm(self: Value, mat2: Value) -> Value:
    """``self @ mat2`` for matrices, or for batches of the same size."""
    return cast(product(self, mat2), self.dtype)


@lowers(aten.mv.default, dtypes=DTYPES)
def mv(self: Value, vec: Value) -> Value:
    """Matrix times vector."""
    return cast(_mv(self, vec), self.dtype)


@lowers(aten.dot.default, dtypes=DTYPES)
def dot(self: Value, tensor: Value) -> Value:
    """Sum of products of two vectors, without conjugation."""
    return cast(_inner(self, tensor), self.dtype)


@lowers(aten.vdot.default, dtypes=DTYPES)
def vdot(self: Value, other: Value) -> Value:
    """Sum of products of the conjugate of ``self`` and ``other``."""
    return cast(_inner(hlo.conj(self), other), self.dtype)


@lowers(aten.matmul.default, dtypes=DTYPES)
def matmul(self: Value, other: Value, out: Spec) -> Value:
    """``torch.matmul``: a 1-d operand is a row or a column, and batch axes broadcast."""
    return cast(_matmul(self, other, out), out.dtype)


@lowers(aten.linear.default, dtypes=DTYPES)
def linear(input: Value, weight: Value, bias: Value | None = None, *, out: Spec) -> Value:
    """``input @ weight.T + bias``; a 1-d ``weight`` gives a scalar per row."""
    result = contracted(input, weight, ([input.rank - 1], [weight.rank - 1]))
    if bias is not None:
        result = result + hlo.broadcast_to(hlo.convert(bias, result.dtype), result.shape)
    return cast(result, out.dtype)


def _mv(matrix: Value, vector: Value) -> Value:
    return contracted(matrix, vector, ([1], [0]))


def _inner(a: Value, b: Value) -> Value:
    return contracted(a, b, ([0], [0]))


def _matmul(a: Value, b: Value, out: Spec) -> Value:
    if b.rank <= 2:  # one right operand for all batches
        return contracted(a, b, ([a.rank - 1], [max(b.rank - 2, 0)]))
    if a.rank == 1:
        return contracted(b, a, ([b.rank - 2], [0]))
    if a.rank == 2:  # (m, *batch, n)
        return hlo.move_axis(contracted(a, b, ([1], [b.rank - 2])), 0, -2)
    batch = out.shape[:-2]
    return product(_with_batch(a, batch), _with_batch(b, batch))


def _with_batch(x: Value, batch: hlo.Shape) -> Value:
    return hlo.broadcast_to(x, (*batch, *x.shape[-2:]))


# Products added to something ---------------------------------------------------------


@lowers(aten.addmm.default, dtypes=DTYPES, refuses=other_dtypes("mat1", "mat2"))
def addmm(self: Value, mat1: Value, mat2: Value, *, beta: Any = 1, alpha: Any = 1, out: Spec) -> Value:
    """``beta * self + alpha * mat1 @ mat2``."""
    added = _read(product(mat1, mat2), alpha, mat1, REAL_BLAS | COMPLEX_BLAS)
    return combined(self, added, beta, _factor(alpha, mat1), out)


@lowers(aten.baddbmm.default, dtypes=DTYPES, refuses=other_dtypes("batch1", "batch2"))
def baddbmm(self: Value, batch1: Value, batch2: Value, *, beta: Any = 1, alpha: Any = 1, out: Spec) -> Value:
    """``beta * self + alpha * batch1 @ batch2`` for each matrix of the batch."""
    return combined(self, product(batch1, batch2), beta, _factor(alpha, batch1), out)


@lowers(
    aten.addbmm.default,
    dtypes=DTYPES - FLOAT8,
    gaps=dict.fromkeys(FLOAT8, "eager rounds the sum to float8 after every matrix of the batch"),
    refuses=other_dtypes("batch1", "batch2"),
)
def addbmm(self: Value, batch1: Value, batch2: Value, *, beta: Any = 1, alpha: Any = 1, out: Spec) -> Value:
    """``beta * self + alpha * sum``, where ``sum`` adds ``batch1 @ batch2`` over the batch."""
    total = contracted(batch1, batch2, ([0, 2], [0, 1]))
    added = _read(total, alpha, batch1, REAL_BLAS | COMPLEX_BLAS)
    return combined(self, added, beta, _factor(alpha, batch1), out)


@lowers(aten.addmv.default, dtypes=DTYPES, refuses=other_dtypes("mat", "vec"))
def addmv(self: Value, mat: Value, vec: Value, *, beta: Any = 1, alpha: Any = 1, out: Spec) -> Value:
    """``beta * self + alpha * mat @ vec``."""
    return combined(self, _read(_mv(mat, vec), alpha, mat, REAL_BLAS), beta, _factor(alpha, mat), out)


@lowers(aten.addr.default, dtypes=DTYPES)
def addr(self: Value, vec1: Value, vec2: Value, *, beta: Any = 1, alpha: Any = 1, out: Spec) -> Value:
    """``beta * self + alpha * outer(vec1, vec2)``; bools use logical or and and."""
    dtype = opmath(out.dtype)
    column = hlo.broadcast_in_dim(hlo.convert(vec1, dtype), out.shape, [0])
    row = hlo.broadcast_in_dim(hlo.convert(vec2, dtype), out.shape, [1])
    if not out.dtype.is_bool:
        return combined(self, column * row, beta, alpha, out)
    result = scaled(column & row, alpha)
    return scaled(hlo.broadcast_to(self, out.shape), beta) | result


# Products of three -------------------------------------------------------------------


def _refuses_surplus_axes(arguments: Mapping[str, Any]) -> str | None:
    rank = arguments["i1"].dim() + len(arguments["expand1"])
    inserted = [{axis_of(axis, rank) for axis in arguments[f"expand{place}"]} for place in (1, 2, 3)]
    if set.intersection(*inserted):
        return "an axis is inserted into each of its tensors, and eager then sums over no elements"
    return None


@lowers(
    aten._trilinear.default,
    dtypes=DTYPES,
    refuses=_refuses_surplus_axes,
    ignores=("unroll_dim",),  # controls how eager loops
)
def _trilinear(
    i1: Value,
    i2: Value,
    i3: Value,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    out: Spec,
) -> Value:
    """Add size-1 axes to each of three tensors at its ``expand``; sum their product over ``sumdim``."""
    if any(is_empty(x.shape) for x in (i1, i2, i3)):
        return hlo.full(out.shape, 0, out.dtype)
    dtype = opmath(out.dtype)
    rank = i1.rank + len(expand1)

    def axes_without(dims: Sequence[int]) -> list[int]:
        left_out = {axis_of(dim, rank) for dim in dims}
        return [axis for axis in range(rank) if axis not in left_out]

    terms = [
        (hlo.convert(x, dtype), axes_without(expand))
        for x, expand in ((i1, expand1), (i2, expand2), (i3, expand3))
    ]
    kept = axes_without(sumdim)
    reduced = set(range(rank)) - set(kept)
    (x, x_axes), (y, y_axes), (z, z_axes) = terms
    pair, pair_axes = _pairwise(x, x_axes, y, y_axes, summed=reduced - set(z_axes))
    result, axes = _pairwise(pair, pair_axes, z, z_axes, summed=reduced)
    present = hlo.transpose(result, [axes.index(axis) for axis in kept if axis in axes])
    return cast(hlo.reshape(present, out.shape), out.dtype)


def _pairwise(
    a: Value, a_axes: list[int], b: Value, b_axes: list[int], summed: set[int]
) -> tuple[Value, list[int]]:
    """Multiply two values with labeled axes and sum over ``summed``; also return the result's labels."""
    a, a_axes = _sum_own(a, a_axes, summed - set(b_axes))
    b, b_axes = _sum_own(b, b_axes, summed - set(a_axes))
    shared = [axis for axis in a_axes if axis in b_axes]
    batch = [axis for axis in shared if axis not in summed]
    contract = [axis for axis in shared if axis in summed]
    result = hlo.dot_general(
        a,
        b,
        contract=([a_axes.index(axis) for axis in contract], [b_axes.index(axis) for axis in contract]),
        batch=([a_axes.index(axis) for axis in batch], [b_axes.index(axis) for axis in batch]),
    )
    rest = [axis for axis in (*a_axes, *b_axes) if axis not in shared]
    return result, [*batch, *rest]


def _sum_own(x: Value, axes: list[int], summed: set[int]) -> tuple[Value, list[int]]:
    own = [place for place, axis in enumerate(axes) if axis in summed]
    if not own:
        return x, axes
    return hlo.reduce_sum(x, own), [axis for axis in axes if axis not in summed]
