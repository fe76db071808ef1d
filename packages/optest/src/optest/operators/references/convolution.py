"""References of convolutions: shifted slices of the input, one for each kernel element."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from .wide import Array, Reference, reference

Sizes = int | tuple[int, ...]


def spread(value: Sizes, rank: int) -> tuple[int, ...]:
    """Return one value for each of ``rank`` dimensions; a single value is repeated."""
    values = (value,) if isinstance(value, int) else tuple(value)
    return values * rank if len(values) == 1 else values


def _offsets(kernel: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    return product(*map(range, kernel))


def _convolution(
    values: Array, weight: Array, bias: Array, *, stride: Sizes, padding: Sizes, dilation: Sizes, groups: int
) -> Array:
    rank = values.ndim - 2
    steps, pads, gaps = spread(stride, rank), spread(padding, rank), spread(dilation, rank)
    padded = np.pad(values, ((0, 0), (0, 0), *((pad, pad) for pad in pads)))
    kernel = weight.shape[2:]
    sizes = [(padded.shape[2 + i] - gaps[i] * (kernel[i] - 1) - 1) // steps[i] + 1 for i in range(rank)]
    result = np.zeros((values.shape[0], weight.shape[0], *sizes), values.dtype)
    inside, outside = weight.shape[1], weight.shape[0] // groups
    for offset in _offsets(kernel):
        window = tuple(
            slice(offset[i] * gaps[i], offset[i] * gaps[i] + (sizes[i] - 1) * steps[i] + 1, steps[i])
            for i in range(rank)
        )
        piece = padded[(slice(None), slice(None), *window)]
        for group in range(groups):
            rows = slice(group * outside, (group + 1) * outside)
            taken = piece[:, group * inside : (group + 1) * inside]
            place: Any = (rows, slice(None), *offset)
            result[:, rows] += _mix(weight[place], taken)
    return result + bias.reshape(-1, *(1,) * rank)


def _mix(matrix: Array, channels: Array) -> Array:
    """Apply ``matrix`` [out, in] to ``channels`` [batch, in, ...]."""
    return np.moveaxis(np.tensordot(matrix, channels, axes=(1, 1)), 0, 1)


def _transposed(
    values: Array,
    weight: Array,
    bias: Array,
    *,
    stride: Sizes,
    padding: Sizes,
    output_padding: Sizes,
    dilation: Sizes,
    groups: int,
) -> Array:
    rank = values.ndim - 2
    steps, pads, gaps = spread(stride, rank), spread(padding, rank), spread(dilation, rank)
    extra, kernel = spread(output_padding, rank), weight.shape[2:]
    sizes = values.shape[2:]
    full = [(sizes[i] - 1) * steps[i] + gaps[i] * (kernel[i] - 1) + 1 + extra[i] for i in range(rank)]
    outside, inside = weight.shape[1], weight.shape[0] // groups
    result = np.zeros((values.shape[0], outside * groups, *full), values.dtype)
    for offset in _offsets(kernel):
        window = tuple(
            slice(offset[i] * gaps[i], offset[i] * gaps[i] + (sizes[i] - 1) * steps[i] + 1, steps[i])
            for i in range(rank)
        )
        for group in range(groups):
            rows = slice(group * inside, (group + 1) * inside)
            element: Any = (rows, slice(None), *offset)
            matrix = weight[element].T
            place: Any = (slice(None), slice(group * outside, (group + 1) * outside), *window)
            result[place] += _mix(matrix, values[:, rows])
    kept = tuple(slice(pad, size - pad) for pad, size in zip(pads, full, strict=True))
    return result[(slice(None), slice(None), *kept)] + bias.reshape(-1, *(1,) * rank)


conv1d_reference: Reference = reference(_convolution)
conv2d_reference: Reference = reference(_convolution)
conv3d_reference: Reference = reference(_convolution)
conv_transpose1d_reference: Reference = reference(_transposed)
conv_transpose2d_reference: Reference = reference(_transposed)
