"""Pairwise distances between rows, and their gradients.

Not here: ``dist`` and ``pairwise_distance``, which PyTorch decomposes into norms.

Each is a composite. Distances are computed from differences, even for p = 2,
where eager may use a matrix product and lose accuracy.
"""

from __future__ import annotations

from ... import hlo
from ...dtypes import FLOAT32, FLOAT64, INT64
from ...hlo import Value
from ...torch_internals.operators import namespace
from ..common import is_empty, restore
from ..composites import composed
from ..misfits import Arguments, other_shape, other_shapes
from ..registry import Spec, lowers
from .reduction import norm_of_magnitudes

aten = namespace("aten")

WIDE = frozenset({FLOAT32, FLOAT64})


def _differences(x1: Value, x2: Value) -> Value:
    """``x1[…, i, m] − x2[…, j, m]`` as ``(…, P, R, M)`` for ``(…, P, M)`` and ``(…, R, M)``."""
    lead = hlo.broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
    shape = (*lead, x1.shape[-2], x2.shape[-2], x1.shape[-1])
    rows = hlo.broadcast_to(hlo.expand_dims(x1, [x1.rank - 1]), shape)
    columns = hlo.broadcast_to(hlo.expand_dims(x2, [x2.rank - 2]), shape)
    return rows - columns


def _distances(x1: Value, x2: Value, p: float) -> Value:
    magnitudes = hlo.abs_(_differences(x1, x2))
    # The maximum of no differences must be 0, not −inf.
    return hlo.maximum(norm_of_magnitudes(magnitudes, p, [magnitudes.rank - 1]), 0.0)


def _gradient(grad: Value, x1: Value, x2: Value, distances: Value, p: float) -> Value:
    """Gradient in ``x1`` of the distances ``(…, P, R)``, given the cotangent ``grad``."""
    differences = _differences(x1, x2)
    last = [differences.rank - 1]
    size, sign = hlo.abs_(differences), hlo.sign(differences)
    norm = restore(distances, differences.shape, last)
    if p == 0:
        slope = hlo.zeros_like(differences)
    elif p == 1:
        slope = sign
    elif p == float("inf"):
        slope = hlo.select(hlo.eq(size, norm), sign, 0.0)
    else:
        ratio = differences / norm if p == 2 else sign * hlo.power(size / norm, p - 1.0)
        # The norm has no gradient at 0. If p < 1, the power has none where the difference is 0.
        flat = hlo.eq(norm, 0.0) | hlo.eq(size, 0.0) if p < 1 else hlo.eq(norm, 0.0)
        slope = hlo.select(flat, 0.0, ratio)
    return hlo.reduce_sum(restore(grad, differences.shape, last) * slope, [differences.rank - 2])


# compute_mode only chooses between formulas for the same result.


@lowers(aten._cdist_forward.default, dtypes=WIDE, ignores=("compute_mode",))
def cdist(x1: Value, x2: Value, p: float, out: Spec) -> list[Value | None]:
    """The ``p``-norm distance of every row of ``x1`` to every row of ``x2``."""
    return composed("cdist", [x1, x2], lambda a, b: _distances(a, b, p), out, {"p": p})


def _refuses_other_rows(given: Arguments) -> str | None:
    """Refuse wrong shapes: kernels read a gradient and a distance for each pair of rows without checking."""
    pairs = (given["x1"].shape[-2], given["x2"].shape[-2])
    for name in ("grad" if "grad" in given else "grad_output", "cdist"):
        if said := other_shape(name, given[name].shape, (*given[name].shape[:-2], *pairs)):
            return said
    return None


@lowers(
    aten._cdist_backward.default,
    dtypes=WIDE,
    renamed={"grad": "grad_output"},
    refuses=_refuses_other_rows,
)
def cdist_backward(
    grad: Value, x1: Value, x2: Value, p: float, cdist: Value, out: Spec
) -> list[Value | None]:
    """Gradient of :func:`cdist` in ``x1``; if there are no distances, its batch axes are not broadcast."""
    if is_empty(grad.shape):
        return [hlo.full(out.shape, 0, out.dtype)]

    def kernel(grad: Value, x1: Value, x2: Value, distances: Value) -> Value:
        return _gradient(grad, x1, x2, distances, p)

    return composed("cdist_backward", [grad, x1, x2, cdist], kernel, out, {"p": p})


def _pair_index(n: int) -> Value:
    """Return ``(n, n)`` indices of the pairs i < j in row order; elsewhere n(n−1)/2, one past the last."""
    i, j = (hlo.iota((n, n), axis, INT64) for axis in (0, 1))
    place = i * (2 * n - 1 - i) / 2 + (j - i - 1)
    return hlo.select(i < j, place, n * (n - 1) // 2)


@lowers(aten._pdist_forward.default, dtypes=WIDE)
def pdist(self: Value, p: float = 2.0, *, out: Spec) -> list[Value | None]:
    """The ``p``-norm distance of each pair of rows, in row order."""

    def kernel(x: Value) -> Value:
        n = x.shape[0]
        return hlo.scatter(
            [hlo.full(out.shape, 0, x.dtype)],
            hlo.expand_dims(_pair_index(n), [2]),
            [_distances(x, x, p)],
            lambda _, distance: distance,
            update_window=[],
            inserted=[0],
            to_operand=[0],
            index_vector_dim=2,
        )[0]

    return composed("pdist", [self], kernel, out, {"p": p})


def _refuses_other_pairs(given: Arguments) -> str | None:
    """Refuse wrong shapes: kernels read a gradient and a distance for each pair of rows without checking."""
    rows = given["self"].shape[0]
    grad = "grad" if "grad" in given else "grad_output"
    return other_shapes(given, (grad, "pdist"), (rows * (rows - 1) // 2,))


@lowers(
    aten._pdist_backward.default,
    dtypes=WIDE,
    refuses=_refuses_other_pairs,
    renamed={"grad": "grad_output"},
)
def pdist_backward(grad: Value, self: Value, p: float, pdist: Value, out: Spec) -> list[Value | None]:
    """Gradient of :func:`pdist`."""

    def kernel(grad: Value, x: Value, distances: Value) -> Value:
        n = x.shape[0]
        index = _pair_index(n)
        index = hlo.minimum(index, hlo.transpose(index, (1, 0)))
        # The extra entry stands for the diagonal, where all differences are zero.
        grad, distances = (hlo.take(hlo.pad_axis(pairs, 0, 0, 0, 1), index, 0) for pairs in (grad, distances))
        return _gradient(grad, x, x, distances, p)

    return composed("pdist_backward", [grad, self, pdist], kernel, out, {"p": p})
