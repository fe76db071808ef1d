"""Fractional max pooling: windows of one size at pseudorandom places, and the gradient.

The random numbers are an operand. They determine where the windows begin, as in
aten/src/ATen/native/FractionalMaxPooling.h, in the operand's own precision.
Not here: other pooling.
"""

from __future__ import annotations

from collections.abc import Sequence

from ... import hlo
from ...dtypes import FLOATING, INT32, INT64
from ...hlo import Value
from ...torch_internals.operators import namespace
from ..common import is_empty
from ..misfits import Arguments, other_shapes
from ..promotion import opmath
from ..record import Check
from ..registry import Spec, lowers
from ..windows import first_maximum, places
from .max_pooling import scattered

aten = namespace("aten")


@lowers(aten.fractional_max_pool2d.default, dtypes=FLOATING)
def fractional_max_pool2d(
    self: Value,
    kernel_size: Sequence[int],
    output_size: Sequence[int],
    random_samples: Value,
    out: tuple[Spec, Spec],
) -> tuple[Value, Value]:
    """Maximum of each window of a plane, and its position. Samples are ordered width, then height."""
    return _fractional(self, kernel_size, output_size, hlo.reverse(random_samples, [2]), out[0])


@lowers(aten.fractional_max_pool3d.default, dtypes=FLOATING)
def fractional_max_pool3d(
    self: Value,
    kernel_size: Sequence[int],
    output_size: Sequence[int],
    random_samples: Value,
    out: tuple[Spec, Spec],
) -> tuple[Value, Value]:
    """Maximum of each window of a volume, and its position. Samples are in the order of the axes."""
    return _fractional(self, kernel_size, output_size, random_samples, out[0])


def _fractional(
    x: Value, kernel: Sequence[int], counts: Sequence[int], samples: Value, out: Spec
) -> tuple[Value, Value]:
    if is_empty(out.shape):
        return hlo.full(out.shape, 0, out.dtype), hlo.full(out.shape, 0, INT64)
    rank = len(kernel)
    value = x if x.rank == rank + 2 else hlo.expand_dims(x, [0])
    place = places(value, rank)
    if samples.shape[0] != value.shape[0]:  # PyTorch accepts samples for a larger batch, and uses the first
        samples = hlo.slice_axis(samples, 0, 0, value.shape[0])
    samples_of = [hlo.squeeze(hlo.slice_axis(samples, 2, axis, axis + 1), [2]) for axis in range(rank)]
    sizes = value.shape[2:]
    starts_of = [_starts(*given) for given in zip(samples_of, sizes, counts, kernel, strict=True)]
    if min(kernel) <= 0:
        first = hlo.reshape(_first_places(starts_of, sizes), out.shape)
        return hlo.full(out.shape, float("-inf"), out.dtype), first
    for axis, starts in enumerate(starts_of):
        shape = (*starts.shape, kernel[axis])
        positions = hlo.broadcast_in_dim(starts, shape, [0, 1, 2]) + hlo.iota(shape, 3, INT32)
        values, where = _taken(value, positions, 2 + axis), _taken(place, positions, 2 + axis)
        value, place = first_maximum(values, where, [3 + axis])
    return hlo.reshape(value, out.shape), hlo.reshape(hlo.convert(place, INT64), out.shape)


def _starts(sample: Value, size: int, count: int, kernel: int) -> Value:
    """Return where windows begin along one axis: maps ``(n, c)`` samples to int32 ``(n, c, count)``."""
    shape = (*sample.shape, count)
    if count > 1:
        alpha = hlo.scalar(size - kernel, sample.dtype) / hlo.scalar(count - 1, sample.dtype)
        factor = hlo.broadcast_to(alpha, shape)
        offset = hlo.broadcast_in_dim(sample, shape, [0, 1])
        steps = hlo.iota(shape, 2, sample.dtype) + offset
        inner = hlo.convert(steps * factor, INT32) - hlo.convert(offset * factor, INT32)
        return hlo.select(hlo.iota(shape, 2, INT32) < count - 1, inner, size - kernel)
    return hlo.full(shape, size - kernel, INT32)


def _first_places(starts_of: Sequence[Value], sizes: hlo.Shape) -> Value:
    """Return the int64 row-major position where each window begins, for windows that have no elements."""
    shape = (*starts_of[0].shape[:2], *(starts.shape[2] for starts in starts_of))
    total = hlo.full(shape, 0, INT64)
    for axis, (starts, size) in enumerate(zip(starts_of, sizes, strict=True)):
        extent = hlo.convert(hlo.dim_scalar(size), INT64)
        along = hlo.broadcast_in_dim(hlo.convert(starts, INT64), shape, [0, 1, 2 + axis])
        total = total * hlo.broadcast_to(extent, shape) + along
    return total


def _taken(x: Value, positions: Value, axis: int) -> Value:
    """Replace ``axis`` of ``x`` by the last two axes of ``positions``, ``(n, c, windows, kernel)``."""
    sizes = [1 if i in (0, 1, axis) else dim for i, dim in enumerate(x.shape)]
    behind = range(axis + 2, x.rank + 1)
    return hlo.gather(
        x,
        hlo.expand_dims(positions, [4]),
        offset_dims=[*range(2, axis), *behind],
        collapsed=[axis],
        start_index_map=[axis],
        index_vector_dim=4,
        slice_sizes=sizes,
        operand_batching=[0, 1],
        indices_batching=[0, 1],
    )


def _refuses_other_windows(rank: int) -> Check:
    """Return a check that there is one gradient and one position per window over the last ``rank`` axes."""

    def refuses(given: Arguments) -> str | None:
        """Refuse gradients and positions of wrong shapes: kernels read one of each per window, unchecked."""
        wanted = (*given["self"].shape[:-rank], *given["output_size"])
        return other_shapes(given, ("grad_output", "indices"), wanted)

    return refuses


@lowers(
    aten.fractional_max_pool2d_backward.default,
    dtypes=FLOATING,
    ignores=("kernel_size", "output_size"),  # the positions determine the destinations
    refuses=_refuses_other_windows(2),
)
def fractional_max_pool2d_backward(grad_output: Value, self: Value, indices: Value) -> Value:
    """Send the gradient of each window to the element that was its maximum."""
    return _backward(grad_output, self, indices, 2)


@lowers(
    aten.fractional_max_pool3d_backward.default,
    dtypes=FLOATING,
    ignores=("kernel_size", "output_size"),  # the positions determine the destinations
    refuses=_refuses_other_windows(3),
)
def fractional_max_pool3d_backward(grad_output: Value, self: Value, indices: Value) -> Value:
    """Send the gradient of each window to the element that was its maximum."""
    return _backward(grad_output, self, indices, 3)


def _backward(grad: Value, x: Value, indices: Value, rank: int) -> Value:
    wide = hlo.convert(grad, opmath(grad.dtype))
    return hlo.convert(scattered(wide, indices, x.shape, rank), grad.dtype)
