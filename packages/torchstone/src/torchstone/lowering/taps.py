"""Weighted sums of a few elements along one axis, at positions known when the program is built.

Resampling and adaptive pooling are such sums along each axis in turn. So are
their gradients.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from dataclasses import dataclass

import numpy
import numpy.typing

from .. import hlo
from ..dtypes import BOOL, INT32
from ..hlo import Value

_UNROLLED = 8
"""The maximum number of terms to write out; longer sums are one reduction."""

Positions = numpy.typing.NDArray[numpy.int64]


@dataclass(frozen=True)
class Taps:
    """The input ``positions`` and ``weights`` of each output position, one row per output position.

    Both are ``(outputs, terms)``; rows are padded with entries that are not ``used``.
    """

    positions: Positions
    weights: numpy.typing.NDArray[numpy.floating]
    used: numpy.typing.NDArray[numpy.bool_]

    @classmethod
    def of(cls, positions: Positions, weights: numpy.typing.NDArray[numpy.floating]) -> Taps:
        """Make taps that are all used."""
        return cls(positions, weights, numpy.ones(positions.shape, dtype=bool))

    @classmethod
    def ranges(cls, starts: Positions, stops: Positions) -> Taps:
        """Make taps where output ``i`` sums ``starts[i]`` to ``stops[i]`` (exclusive) with weight 1."""
        terms = int((stops - starts).max(initial=0))
        positions = starts[:, None] + numpy.arange(terms)
        used = positions < stops[:, None]
        return cls(numpy.where(used, positions, 0), used.astype(numpy.float64), used)

    def scaled(self, factors: numpy.typing.NDArray[numpy.floating]) -> Taps:
        """Multiply each row's weights by its own factor."""
        return Taps(self.positions, self.weights * factors[:, None], self.used)

    def fixed_point(self) -> tuple[Taps, int]:
        """Round weights to integers of 16 signed bits; also return the number of their fractional bits.

        Terms at the same position are added before rounding.
        """
        weights, used = self.weights.copy(), self.used.copy()
        for later in range(self.terms):
            for earlier in range(later):
                same = (
                    used[:, later]
                    & used[:, earlier]
                    & (self.positions[:, later] == self.positions[:, earlier])
                )
                weights[same, earlier] += weights[same, later]
                used[same, later] = False
        largest = weights[used].max(initial=0)
        bits = next(
            bits for bits in range(23) if bits == 22 or int(0.5 + largest * 2 ** (bits + 1)) >= 1 << 15
        )
        return Taps(self.positions, numpy.trunc(weights * 2**bits + numpy.copysign(0.5, weights)), used), bits

    def adjoint(self, size: int) -> Taps:
        """Return the transposed map: from output positions back to ``size`` input positions."""
        outputs, terms = numpy.nonzero(self.used)
        inputs, weights = self.positions[outputs, terms], self.weights[outputs, terms]
        order = numpy.argsort(inputs, kind="stable")
        inputs, outputs, weights = inputs[order], outputs[order], weights[order]
        counts = numpy.bincount(inputs, minlength=size)
        place = numpy.arange(len(inputs)) - numpy.repeat(numpy.cumsum(counts) - counts, counts)
        shape = (size, int(counts.max(initial=0)))
        positions, values = numpy.zeros(shape, dtype=numpy.int64), numpy.zeros(shape, dtype=weights.dtype)
        used = numpy.zeros(shape, dtype=bool)
        positions[inputs, place], values[inputs, place], used[inputs, place] = outputs, weights, True
        return Taps(positions, values, used)

    @functools.cached_property
    def terms(self) -> int:
        return self.positions.shape[1]

    def apply(self, x: Value, axis: int) -> Value:
        """Compute the weighted sums of ``x`` along ``axis``; unused entries do not count, even if NaN."""
        if self.terms <= _UNROLLED:
            parts = [self._term(x, axis, term) for term in range(self.terms)]
            return functools.reduce(operator.add, parts) if parts else self._nothing(x, axis)
        taken = hlo.take(x, hlo.constant(self.positions, INT32), axis)
        return hlo.reduce_sum(self._weighed(taken, [axis, axis + 1], slice(None)), [axis + 1])

    def _nothing(self, x: Value, axis: int) -> Value:
        return hlo.full([len(self.positions) if i == axis else d for i, d in enumerate(x.shape)], 0, x.dtype)

    def _term(self, x: Value, axis: int, term: int) -> Value:
        return self._weighed(take_static(x, self.positions[:, term], axis), [axis], term)

    def _weighed(self, taken: Value, axes: Sequence[int], terms: slice | int) -> Value:
        weights, used = self.weights[:, terms], self.used[:, terms]
        if not (weights[used] == 1).all():
            factor = hlo.constant(weights, taken.dtype)
            taken = taken * hlo.broadcast_in_dim(factor, taken.shape, axes)
        if not used.all():
            mask = hlo.broadcast_in_dim(hlo.constant(used, BOOL), taken.shape, axes)
            taken = hlo.select(mask, taken, 0)
        return taken


def take_static(x: Value, positions: Positions, axis: int) -> Value:
    """Take ``x`` at known positions along ``axis``: by a slice or a repetition if regular, else a gather."""
    size, count = x.shape[axis], len(positions)
    if count and isinstance(size, int):
        step = int(positions[1] - positions[0]) if count > 1 else 1
        first = int(positions[0])
        if step > 0 and (positions == first + step * numpy.arange(count)).all():
            return hlo.slice_axis(x, axis, first, first + step * (count - 1) + 1, step)
        if count % size == 0 and (positions == numpy.arange(count) // (count // size)).all():
            shape = [*x.shape[: axis + 1], count // size, *x.shape[axis + 1 :]]
            repeated = hlo.broadcast_in_dim(x, shape, [i for i in range(x.rank + 1) if i != axis + 1])
            return hlo.reshape(repeated, [count if i == axis else d for i, d in enumerate(x.shape)])
    return hlo.take(x, hlo.constant(positions, INT32), axis)
