"""Sampling of planes and volumes at run-time positions, and its gradients.

A sample is a weighted sum of a few elements around its position. Along one axis,
:class:`_Tap` objects describe these elements. All combinations of the taps of the
axes contribute. Conventions follow aten/src/ATen/native/GridSampler.h.

Not here: resampling at positions known in advance (``resize``);
``affine_grid_generator``, which is a matrix product.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Sequence
from dataclasses import dataclass

from ... import hlo
from ...dtypes import FLOATING, INT32
from ...hlo import Value
from ...torch_internals.operators import namespace
from ..promotion import opmath
from ..registry import lowers

aten = namespace("aten")

_NEAREST, _CUBIC = 1, 2  # interpolation modes; 0 is linear
_ZEROS, _BORDER = 0, 1  # padding modes; 2 is reflection
_CUBIC_A = -0.75


@lowers(aten.grid_sampler_2d.default, aten.grid_sampler_3d.default, dtypes=FLOATING)
def grid_sampler(
    input: Value, grid: Value, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Value:
    """``(n, c, *in)`` sampled at ``grid``, ``(n, *out, axes)``, whose coordinates run from −1 to 1."""
    axes = _axes(input, grid, interpolation_mode, padding_mode, align_corners)
    flat = _flat(hlo.convert(input, opmath(input.dtype)))
    parts = [_part(taps, flat, input) for taps in itertools.product(*axes)]
    total = functools.reduce(operator.add, parts)
    shape = (*input.shape[:2], *grid.shape[1:-1])
    return hlo.convert(hlo.reshape(total, shape), input.dtype)


def _part(taps: Sequence[_Tap], flat: Value, input: Value) -> Value:
    """Return the contribution of one element to each sample, for all channels.

    Outside the input, a volume has no elements, while a plane has zeros. Therefore, weights that are NaN,
    because of NaN or infinite positions, affect only samples of planes.
    """
    element = _gather(flat, _position(taps, input))
    inside, weight = (
        _over_channels(x, flat) for x in (_inside(taps), _product([tap.weight for tap in taps]))
    )
    if len(taps) == 2:
        return weight * hlo.select(inside, element, 0)
    return hlo.select(inside, weight * element, 0)


@lowers(aten.grid_sampler_2d_backward.default, aten.grid_sampler_3d_backward.default, dtypes=FLOATING)
def grid_sampler_backward(
    grad_output: Value,
    input: Value,
    grid: Value,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
    output_mask: Sequence[bool],
) -> tuple[Value | None, Value]:
    """Gradients in ``input``, if ``output_mask`` requests it, and in ``grid``, even if it does not."""
    axes = _axes(input, grid, interpolation_mode, padding_mode, align_corners)
    combinations = list(itertools.product(*axes))
    grad = _flat(hlo.convert(grad_output, opmath(grad_output.dtype)))
    in_input = _input_gradient(grad, input, combinations) if output_mask[0] else None
    if interpolation_mode == _NEAREST:
        return in_input, hlo.zeros_like(grid)
    return in_input, _grid_gradient(grad, input, grid, combinations)


def _input_gradient(grad: Value, input: Value, combinations: Sequence[tuple[_Tap, ...]]) -> Value:
    """Add each sample's weighted gradient to the elements that contributed to it."""
    indices = hlo.concatenate([_position(taps, input) for taps in combinations], 1)
    updates = hlo.concatenate([_share(taps, grad) for taps in combinations], 2)
    volume = hlo.product(input.shape[2:])
    (total,) = hlo.scatter(
        [hlo.full((*input.shape[:2], volume), 0, grad.dtype)],
        hlo.expand_dims(indices, [2]),
        [updates],
        operator.add,
        update_window=[1],
        inserted=[2],
        to_operand=[2],
        index_vector_dim=2,
        input_batching=[0],
        indices_batching=[0],
    )
    return hlo.convert(hlo.reshape(total, input.shape), input.dtype)


def _share(taps: Sequence[_Tap], grad: Value) -> Value:
    """Return an element's share of each sample's gradient; zero outside the input, even for infinity."""
    weight = _over_channels(_product([tap.weight for tap in taps]), grad)
    return hlo.select(_over_channels(_inside(taps), grad), weight * grad, 0)


def _grid_gradient(grad: Value, input: Value, grid: Value, combinations: Sequence[tuple[_Tap, ...]]) -> Value:
    """Return the gradient with respect to each sample's coordinates, summed over the channels."""
    flat = _flat(hlo.convert(input, grad.dtype))
    rank = input.rank - 2
    along = [hlo.reduce_sum(grad * _gather(flat, _position(taps, input)), [1]) for taps in combinations]
    columns = []
    for axis in reversed(range(rank)):
        slopes = (_weight(taps, slope_of=axis) for taps in combinations)
        total = functools.reduce(operator.add, map(operator.mul, along, slopes))
        columns.append(hlo.expand_dims(total, [2]))
    return hlo.convert(hlo.reshape(hlo.concatenate(columns, 2), grid.shape), grid.dtype)


# Positions, weights and elements ------------------------------------------------------


@dataclass(frozen=True)
class _Tap:
    """One element along one axis for each sample; all values are ``(n, samples)``.

    ``inside`` says whether the element exists; if not, ``index`` is 0. ``slope`` is the
    derivative of ``weight`` with respect to the grid's coordinate.
    """

    inside: Value
    index: Value
    weight: Value
    slope: Value


def _flat(x: Value) -> Value:
    return hlo.reshape(x, (*x.shape[:2], hlo.product(x.shape[2:])))


def _over_channels(x: Value, like: Value) -> Value:
    """Repeat ``(n, samples)`` for the channels of ``like``."""
    return hlo.broadcast_in_dim(x, (x.shape[0], like.shape[1], x.shape[1]), [0, 2])


def _product(factors: Sequence[Value]) -> Value:
    return functools.reduce(operator.mul, factors)


def _inside(taps: Sequence[_Tap]) -> Value:
    return functools.reduce(operator.and_, [tap.inside for tap in taps])


def _weight(taps: Sequence[_Tap], slope_of: int | None = None) -> Value:
    """Return the weight of an element, or its slope along one axis; zero outside the input."""
    factors = [tap.slope if axis == slope_of else tap.weight for axis, tap in enumerate(taps)]
    return hlo.select(_inside(taps), _product(factors), 0)


def _position(taps: Sequence[_Tap], input: Value) -> Value:
    """Return the row-major position within the plane or volume, ``(n, samples)``."""
    result = taps[0].index
    for tap, size in zip(taps[1:], input.shape[3:], strict=True):
        result = result * _extent(size, result) + tap.index
    return result


def _gather(flat: Value, position: Value) -> Value:
    """Take all channels of ``(n, c, volume)`` at positions ``(n, samples)``."""
    return hlo.gather(
        flat,
        hlo.expand_dims(position, [2]),
        offset_dims=[1],
        collapsed=[2],
        start_index_map=[2],
        index_vector_dim=2,
        slice_sizes=[1, flat.shape[1], 1],
        operand_batching=[0],
        indices_batching=[0],
    )


def _extent(size: hlo.Dim, like: Value) -> Value:
    return hlo.broadcast_to(hlo.convert(hlo.dim_scalar(size), like.dtype), like.shape)


def _axes(input: Value, grid: Value, mode: int, padding: int, align_corners: bool) -> list[list[_Tap]]:
    """Return the taps along each spatial axis. The grid's last coordinate belongs to the first axis."""
    dtype = opmath(grid.dtype)
    rank = input.rank - 2
    samples = (grid.shape[0], hlo.product(grid.shape[1:-1]))
    axes = []
    for axis, size in enumerate(input.shape[2:]):
        column = rank - 1 - axis
        coordinate = hlo.slice_axis(grid, grid.rank - 1, column, column + 1)
        coordinate = hlo.convert(hlo.reshape(coordinate, samples), dtype)
        axes.append(_Axis(size, padding, align_corners, coordinate, rank == 3).taps(mode))
    return axes


class _Axis:
    """One axis of a plane or ``volume``: maps the grid's coordinates to elements and weights."""

    def __init__(
        self, size: hlo.Dim, padding: int, align_corners: bool, coordinate: Value, volume: bool
    ) -> None:
        self.padding = padding
        self.volume = volume
        self.align_corners = align_corners
        self.extent = _extent(size, coordinate)
        self.last = self.extent - 1
        if align_corners:
            self.unit = self.last / 2
            self.source = (coordinate + 1) * self.unit
        else:
            self.unit = self.extent / 2
            self.source = ((coordinate + 1) * self.extent - 1) / 2

    def taps(self, mode: int) -> list[_Tap]:
        if mode == _CUBIC:
            return self._cubic()
        source, unit = self._padded(self.source)
        unit = unit * self.unit
        if mode == _NEAREST:
            return [
                self._tap(hlo.round_nearest_even(source), hlo.full_like(source, 1), hlo.zeros_like(source))
            ]
        below = hlo.floor(source)
        fraction = source - below
        return [self._tap(below, 1 - fraction, -unit), self._tap(below + 1, fraction, unit)]

    def _cubic(self) -> list[_Tap]:
        """Return four neighbors; the padding mode applies to each of them instead of to the coordinate."""
        below = hlo.floor(self.source)
        fraction = self.source - below
        taps = []
        for offset, distance in ((-1, fraction + 1), (0, fraction), (1, 1 - fraction), (2, 2 - fraction)):
            near = offset in (0, 1)
            weight, slope = _cubic_near(distance) if near else _cubic_far(distance)
            slope = (slope if offset <= 0 else -slope) * self.unit
            element, _ = self._padded(below + offset)
            taps.append(self._tap(element, weight, slope))
        return taps

    def _tap(self, element: Value, weight: Value, slope: Value) -> _Tap:
        """Make a tap at a whole-number ``element``, which may lie outside the input."""
        inside = (element >= 0) & (element <= self.last)
        return _Tap(inside, hlo.convert(hlo.select(inside, element, 0), INT32), weight, slope)

    def _padded(self, source: Value) -> tuple[Value, Value]:
        """Move ``source`` into the input by the padding mode; also return the derivative of that move."""
        one = hlo.full_like(source, 1)
        if self.padding == _ZEROS:
            return source, one
        if self.padding == _BORDER:
            return self._clipped(source, one)
        if self.align_corners:
            reflected, sign = self._reflected(source, hlo.zeros_like(source), self.last)
        else:
            reflected, sign = self._reflected(source, hlo.full_like(source, -0.5), self.extent)
        return self._clipped(reflected, sign)

    def _clipped(self, source: Value, slope: Value) -> tuple[Value, Value]:
        """Move ``source`` to the nearest border; NaN becomes a plane's first element, a volume's last."""
        within = (source > 0) & (source < self.last)
        zeros = hlo.zeros_like(source)
        known = hlo.select(hlo.ne(source, source), self.last if self.volume else zeros, source)
        return hlo.clamp(zeros, known, self.last), hlo.select(within, slope, 0)

    def _reflected(self, source: Value, low: Value, span: Value) -> tuple[Value, Value]:
        """Fold ``source`` back and forth between ``low`` and ``low + span``."""
        distance = hlo.abs_(source - low)
        flips = hlo.floor(distance / span)
        rest = hlo.remainder(distance, span)
        even = hlo.eq(hlo.remainder(flips, 2.0), 0)
        folded = hlo.select(even, rest, span - rest) + low
        sign = hlo.select(even, hlo.full_like(source, 1), hlo.full_like(source, -1))
        sign = hlo.select(source < low, -sign, sign)
        flat = hlo.eq(span, 0)  # one element with aligned corners: every position maps to it
        return hlo.select(flat, hlo.zeros_like(folded), folded), hlo.select(flat, hlo.zeros_like(sign), sign)


def _cubic_near(x: Value) -> tuple[Value, Value]:
    """The cubic convolution kernel and its derivative at distances in [0, 1]."""
    a = _CUBIC_A
    return ((x * (a + 2)) - (a + 3)) * x * x + 1, (x * (3 * (a + 2)) - 2 * (a + 3)) * x


def _cubic_far(x: Value) -> tuple[Value, Value]:
    """The cubic convolution kernel and its derivative at distances in [1, 2]."""
    a = _CUBIC_A
    return ((x * a - 5 * a) * x + 8 * a) * x - 4 * a, (x * (3 * a) - 10 * a) * x + 8 * a
