"""Convolutions as im2col and one product, and transposed convolutions as those of a spread-out input."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from .common import Array, Implementation, each


def windows(values: Array, kernel: Any, stride: Any, dilation: Any, rank: int) -> Array:
    """Return every window of the last ``rank`` dimensions, with shape [..., *positions, *kernel]."""
    axes = tuple(range(-rank, 0))
    reach = tuple(gap * (size - 1) + 1 for size, gap in zip(kernel, dilation, strict=True))
    found = sliding_window_view(values, reach, axis=axes)
    steps = tuple(slice(None, None, step) for step in stride)
    gaps = tuple(slice(None, None, gap) for gap in dilation)
    place: Any = (..., *steps, *gaps)
    return found[place]


def _correlate(values: Array, weight: Array, bias: Array, stride: Any, dilation: Any, groups: int) -> Array:
    """Correlate ``values`` with ``weight``.

    ``values`` is [batch, groups · in, *spatial], already padded; ``weight`` is [groups · out, in, *kernel].
    """
    rank = values.ndim - 2
    columns = windows(values, weight.shape[2:], stride, dilation, rank)
    batch, spatial = values.shape[0], columns.shape[2 : 2 + rank]
    inside, outside = weight.shape[1], weight.shape[0] // groups
    length = int(np.prod(weight.shape[2:])) * inside
    moved = np.moveaxis(columns, 1, 1 + rank).reshape(batch, int(np.prod(spatial)), groups, length)
    matrices = weight.reshape(groups, outside, length)
    found = np.einsum("bpgl,gol->bgop", moved, matrices)
    result = found.reshape(batch, weight.shape[0], *spatial)
    return result + bias.reshape(1, -1, *(1,) * rank)


def _convolution(
    values: Array, weight: Array, bias: Array, *, stride: Any, padding: Any, dilation: Any, groups: int
) -> Array:
    rank = values.ndim - 2
    pads = [(one, one) for one in each(padding, rank)]
    padded = np.pad(values, [(0, 0), (0, 0), *pads])
    return _correlate(padded, weight, bias, each(stride, rank), each(dilation, rank), groups)


def _transposed(
    values: Array,
    weight: Array,
    bias: Array,
    *,
    stride: Any,
    padding: Any,
    output_padding: Any,
    dilation: Any,
    groups: int,
) -> Array:
    rank = values.ndim - 2
    steps, gaps = each(stride, rank), each(dilation, rank)
    spread = [(size - 1) * step + 1 for size, step in zip(values.shape[2:], steps, strict=True)]
    zeros = np.zeros((*values.shape[:2], *spread), values.dtype)
    place: Any = (..., *(slice(None, None, step) for step in steps))
    zeros[place] = values
    sides = []
    for size, gap, pad, extra in zip(
        weight.shape[2:], gaps, each(padding, rank), each(output_padding, rank), strict=True
    ):
        reach = gap * (size - 1)
        sides.append((reach - pad, reach - pad + extra))
    grown = np.pad(zeros, [(0, 0), (0, 0), *((max(a, 0), max(b, 0)) for a, b in sides)])
    cut: Any = (
        ...,
        *(slice(max(-a, 0), grown.shape[2 + i] - max(-b, 0)) for i, (a, b) in enumerate(sides)),
    )
    mirrored = np.flip(weight, axis=tuple(range(2, weight.ndim)))
    inside, outside = weight.shape[0] // groups, weight.shape[1]
    grouped = mirrored.reshape(groups, inside, outside, *weight.shape[2:])
    swapped = np.swapaxes(grouped, 1, 2).reshape(groups * outside, inside, *weight.shape[2:])
    return _correlate(grown[cut], swapped, bias, (1,) * rank, gaps, groups)


OPERATORS: dict[str, Implementation] = {
    "conv1d": _convolution,
    "conv2d": _convolution,
    "conv3d": _convolution,
    "conv_transpose1d": _transposed,
    "conv_transpose2d": _transposed,
}
