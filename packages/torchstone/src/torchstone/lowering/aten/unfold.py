"""Sliding blocks of planes as columns, and their sum back into planes.

Not here: convolutions (which use no columns), ``unfold`` of one dimension (a view).
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence

from ... import hlo
from ...dtypes import BOOLEAN, COMPLEX, FLOATING
from ...hlo import Value
from ...torch_internals.operators import namespace
from ..correlation import columns
from ..promotion import opmath
from ..registry import Spec, lowers
from ..windows import Windows

aten = namespace("aten")


@lowers(aten.im2col.default, dtypes=FLOATING | COMPLEX | BOOLEAN)
def im2col(
    self: Value,
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
    out: Spec,
) -> Value:
    """``(…, c, h, w)`` to ``(…, c · block, blocks)``: each column is one block."""
    windows = _blocks(self.shape[-2:], kernel_size, dilation, padding, stride)
    return hlo.reshape(columns(self, windows), out.shape)  # symbolic sizes as PyTorch writes them


@lowers(aten.col2im.default, dtypes=FLOATING | COMPLEX | BOOLEAN)
def col2im(
    self: Value,
    output_size: Sequence[int],
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
    out: Spec,
) -> Value:
    """The adjoint of :func:`im2col`: overlapping blocks are added (logical or for bools)."""
    windows = _blocks(tuple(output_size), kernel_size, dilation, padding, stride)
    lead, channels = out.shape[:-3], out.shape[-3]
    axis = len(lead) + 1
    elements = list(windows.elements())
    columns = hlo.reshape(
        hlo.convert(self, opmath(self.dtype)), (*lead, channels, len(elements), *windows.counts)
    )
    parts = [
        windows.untap(hlo.squeeze(hlo.slice_axis(columns, axis, place, place + 1), [axis]), element)
        for place, element in enumerate(elements)
    ]
    return hlo.convert(functools.reduce(operator.add, parts), out.dtype)


def _blocks(
    sizes: hlo.Shape,
    kernel: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Windows:
    """All blocks that fit into a padded plane; each list has two entries."""
    counts = [
        (size + 2 * p - d * (k - 1) - 1) // s + 1
        for size, k, d, p, s in zip(sizes, kernel, dilation, padding, stride, strict=True)
    ]
    return Windows.of(sizes, tuple(counts), kernel, stride, padding, dilation)
