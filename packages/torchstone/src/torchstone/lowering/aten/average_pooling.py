"""Average pooling over sliding windows and its gradient.

Not here: adaptive pooling; ``lp_pool``, which PyTorch computes as a power of these averages.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence

from ... import hlo
from ...dtypes import FLOATING, INT64, DType
from ...hlo import Value
from ...torch_internals.operators import namespace
from ..misfits import other_images
from ..promotion import opmath
from ..registry import Spec, lowers
from ..windows import Windows

aten = namespace("aten")


def _lowers_average(rank: int, axes: str) -> None:
    """Register the average over the last ``rank`` axes, and its gradient."""

    # ceil_mode: the shape of the result already reflects it
    @lowers(getattr(aten, f"avg_pool{rank}d").default, dtypes=FLOATING | {INT64}, ignores=("ceil_mode",))
    def pool(
        self: Value,
        kernel_size: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] = (0,),
        count_include_pad: bool = True,
        divisor_override: int | None = None,
        *,
        out: Spec,
    ) -> Value:
        windows = Windows.of(self.shape[-rank:], out.shape[-rank:], kernel_size, stride, padding)
        return _average(self, windows, count_include_pad, divisor_override)

    pool.__doc__ = f"Mean of each window over the last {axes} axes."

    @lowers(
        getattr(aten, f"avg_pool{rank}d_backward").default,
        dtypes=FLOATING | {INT64},
        ignores=("ceil_mode",),
        refuses=other_images(rank),
    )
    def pool_backward(
        grad_output: Value,
        self: Value,
        kernel_size: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        count_include_pad: bool,
        divisor_override: int | None,
    ) -> Value:
        """Divide each window's gradient as the forward pass did, and add it to all elements of the window."""
        windows = Windows.of(self.shape[-rank:], grad_output.shape[-rank:], kernel_size, stride, padding)
        return _average_backward(grad_output, windows, count_include_pad, divisor_override)


def _average(x: Value, windows: Windows, count_include_pad: bool, divisor_override: int | None) -> Value:
    total = hlo.convert(x, opmath(x.dtype))
    for stage in windows.stages():
        framed = stage.frame(total, 0)
        taps = [stage.tap(framed, element) for element in stage.elements()]
        total = functools.reduce(operator.add, taps)
    return hlo.convert(_divided(total, windows, count_include_pad, divisor_override), x.dtype)


def _average_backward(
    grad: Value, windows: Windows, count_include_pad: bool, divisor_override: int | None
) -> Value:
    wide = hlo.convert(grad, opmath(grad.dtype))
    total = _divided(wide, windows, count_include_pad, divisor_override)
    for stage in reversed(windows.stages()):
        total = functools.reduce(operator.add, stage.spread(total, 0))
    return hlo.convert(total, grad.dtype)


def _divided(total: Value, windows: Windows, count_include_pad: bool, divisor_override: int | None) -> Value:
    """Divide each window's ``total`` by the number of its elements that count."""
    if divisor_override is not None:
        return total / divisor_override
    lead = total.rank - windows.rank
    result = hlo.full_like(total, 1)
    for axis in range(windows.rank):
        elements = _elements(windows, axis, count_include_pad, total.dtype)
        result = result * hlo.broadcast_in_dim(elements, total.shape, [lead + axis])
    return total / result


def _elements(windows: Windows, axis: int, count_include_pad: bool, dtype: DType) -> Value:
    """Return how many elements count in each window along ``axis``.

    These are the elements in the input and, with ``count_include_pad``, in its padding.
    """
    size, padding = windows.sizes[axis], windows.padding[axis]
    start = hlo.iota((windows.counts[axis],), 0, INT64) * windows.stride[axis] - padding
    behind = hlo.broadcast_to(hlo.dim_scalar(size + padding), start.shape)
    stop = hlo.minimum(start + windows.kernel[axis], behind)
    if not count_include_pad:
        start = hlo.maximum(start, 0)
        stop = hlo.minimum(stop, hlo.broadcast_to(hlo.dim_scalar(size), start.shape))
    return hlo.convert(stop - start, dtype)


_lowers_average(2, "two")
_lowers_average(3, "three")
