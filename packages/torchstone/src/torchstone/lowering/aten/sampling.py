"""Random permutations, and drawing indices with given weights.

Not here: the distributions of single numbers (``random``).
"""

from __future__ import annotations

from ... import hlo
from ...dtypes import ALL_INTEGRAL, FLOATING, INT64
from ...hlo import Rng, Value
from ...torch_internals.operators import namespace
from ..common import cast
from ..conditions import WEIGHTS
from ..promotion import opmath
from ..registry import Spec, lowers
from .random import logarithm_of_uniform

aten = namespace("aten")


@lowers(
    aten.randperm.default,
    aten.randperm.generator,
    dtypes=ALL_INTEGRAL | FLOATING,
    ignores=("n", "dtype"),
)
def randperm(*, out: Spec, rng: Rng) -> Value:
    """The integers below ``n`` in random order; they are sorted by 64 random bits each."""
    index = hlo.iota(out.shape, 0, INT64)
    order = hlo.sort([rng.bits(out.shape), index], 0, lambda a, b, *_: a < b, stable=True)[1]
    return cast(order, out.dtype)


@lowers(aten.multinomial.default, dtypes=FLOATING, ignores=("num_samples",), values=WEIGHTS)
def multinomial(self: Value, replacement: bool = False, *, out: Spec, rng: Rng) -> Value:
    """``num_samples`` indices per row, drawn with weights ``self`` with or without replacement."""
    weights = hlo.convert(self, opmath(self.dtype))
    draw = _with_replacement if replacement else _without_replacement
    return draw(weights, out.shape, rng)


def _without_replacement(weights: Value, shape: hlo.Shape, rng: Rng) -> Value:
    """Return indices of the smallest exponential variates of rate ``weights`` (Efraimidis, Spirakis 2006)."""
    axis = weights.rank - 1
    rings = -logarithm_of_uniform(rng, weights.shape, weights.dtype) / weights
    index = hlo.index_of(weights, axis)
    order = hlo.sort([rings, index], axis, lambda a, b, *_: a < b, stable=True)[1]
    return hlo.slice_axis(order, axis, 0, shape[-1])


def _with_replacement(weights: Value, shape: hlo.Shape, rng: Rng) -> Value:
    """Find by bisection the first index whose cumulative weight exceeds a uniform fraction of the sum."""
    axis = weights.rank - 1
    (cumulative,) = hlo.associative_scan([weights], axis, lambda a, b: a + b)
    size = weights.shape[axis]
    total = hlo.slice_axis(cumulative, axis, size - 1, size)
    target = rng.uniform(shape, weights.dtype) * hlo.broadcast_to(total, shape)

    def halve(_: Value, low: Value, high: Value) -> list[Value]:
        middle = (low + high) / 2
        beyond = hlo.take_along(cumulative, middle, axis) > target
        return [hlo.select(beyond, low, middle + 1), hlo.select(beyond, middle, high)]

    first = hlo.full(shape, 0, INT64)
    steps = hlo.scalar(size.bit_length(), INT64)
    return hlo.fori(steps, halve, [first, hlo.full_like(first, size - 1)])[0]
