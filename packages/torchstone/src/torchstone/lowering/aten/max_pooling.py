"""Max pooling over sliding windows, its gradient, and unpooling.

The position of a maximum follows PyTorch: the first of equal elements, the last
of several NaNs. Padding is never chosen.

Not here: adaptive and fractional max pooling.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence

from ... import hlo
from ...dtypes import FLOATING, INT64, INTEGRAL
from ...hlo import Value
from ...torch_internals.operators import namespace
from ..conditions import unpooled
from ..misfits import other_images
from ..promotion import opmath
from ..registry import Spec, lowers
from ..windows import Windows, places

aten = namespace("aten")


def _lowers_maximum(rank: int, axes: str, space: str) -> None:
    """Register the maximum over the last ``rank`` axes, and its gradient."""

    @lowers(
        getattr(aten, f"max_pool{rank}d_with_indices").default,
        dtypes=INTEGRAL | FLOATING,
        ignores=("ceil_mode",),  # the shape of the result already reflects it
    )
    def pool(
        self: Value,
        kernel_size: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] = (0,),
        dilation: Sequence[int] = (1,),
        *,
        out: tuple[Spec, Spec],
    ) -> tuple[Value, Value]:
        counts = out[0].shape[-rank:]
        return _maximum(self, Windows.of(self.shape[-rank:], counts, kernel_size, stride, padding, dilation))

    pool.__doc__ = f"Maximum of each window over the last {axes} axes, and its position in the {space}."

    @lowers(
        getattr(aten, f"max_pool{rank}d_with_indices_backward").default,
        dtypes=FLOATING,
        ignores=("ceil_mode",),
        refuses=other_images(rank),
    )
    def pool_backward(
        grad_output: Value,
        self: Value,
        kernel_size: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int],
        indices: Value,
    ) -> Value:
        """Send the gradient of each window to the element that was its maximum."""
        counts = grad_output.shape[-rank:]
        windows = Windows.of(self.shape[-rank:], counts, kernel_size, stride, padding, dilation)
        return _maximum_backward(grad_output, self, windows, indices)


def _maximum(x: Value, windows: Windows) -> tuple[Value, Value]:
    value, place = x, places(x, windows.rank)
    for stage in windows.stages():
        values, candidates = stage.frame(value, hlo.lowest(x.dtype)), stage.frame(place, -1)
        taps = [(stage.tap(values, element), stage.tap(candidates, element)) for element in stage.elements()]
        value, place = taps[0]
        for candidate, where in taps[1:]:
            take = (candidate > value) | (place < 0)
            if x.dtype.is_floating:
                take = take | hlo.is_nan(candidate)
            place = hlo.select(take, where, place)
            value = hlo.maximum(value, candidate)
    return value, hlo.convert(place, INT64)


def _maximum_backward(grad: Value, x: Value, windows: Windows, indices: Value) -> Value:
    wide = hlo.convert(grad, opmath(grad.dtype))
    place = places(x, windows.rank)
    chosen = windows.spread(hlo.convert(indices, place.dtype), -1)
    if len(chosen) > 1 and len(windows.stages()) > 1:
        return hlo.convert(scattered(wide, indices, x.shape, windows.rank), grad.dtype)
    parts = [
        hlo.select(hlo.eq(where, place), value, 0)
        for where, value in zip(chosen, windows.spread(wide, 0), strict=True)
    ]
    return hlo.convert(functools.reduce(operator.add, parts), grad.dtype)


_lowers_maximum(2, "two", "plane")
_lowers_maximum(3, "three", "volume")


# Unpooling ---------------------------------------------------------------------------


@lowers(
    aten.max_unpool2d.default,
    dtypes=FLOATING,
    ignores=("output_size",),  # the shape of the result already reflects it
    values=[unpooled(2)],
)
def max_unpool2d(self: Value, indices: Value, out: Spec) -> Value:
    """Place each element at its position in a plane of zeros."""
    return scattered(self, indices, out.shape, 2, lambda _, new: new)


@lowers(
    aten.max_unpool3d.default,
    dtypes=FLOATING,
    ignores=("output_size", "stride", "padding"),  # the positions determine the destinations
    values=[unpooled(3)],
)
def max_unpool3d(self: Value, indices: Value, out: Spec) -> Value:
    """Place each element at its position in a volume of zeros."""
    return scattered(self, indices, out.shape, 3, lambda _, new: new)


def scattered(
    values: Value,
    indices: Value,
    shape: hlo.Shape,
    rank: int,
    combine: Callable[[Value, Value], Value] = operator.add,
) -> Value:
    """Combine zeros of ``shape`` with ``values`` at their positions within the last ``rank`` axes."""
    lead = shape[:-rank]
    flat = hlo.full((*lead, hlo.product(shape[-rank:])), 0, values.dtype)
    listed = (*lead, hlo.product(values.shape[-rank:]))
    total = hlo.put_along(
        flat, hlo.reshape(indices, listed), hlo.reshape(values, listed), flat.rank - 1, combine
    )
    return hlo.reshape(total, shape)
