"""Windows that slide over the trailing axes of a value; pooling operators share them.

Not here: windows whose bounds come from data or from ratios (adaptive and
fractional pooling use their own indices).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .. import hlo
from ..dtypes import INT32, INT64
from ..hlo import Value

_DIRECT = 16
"""Windows with at most this many elements are read at once; larger ones, axis by axis."""


@dataclass(frozen=True)
class Windows:
    """Kernel, stride, padding and dilation along one or more trailing axes; ``counts`` windows fit."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    sizes: hlo.Shape
    counts: hlo.Shape

    @classmethod
    def of(
        cls,
        sizes: hlo.Shape,
        counts: hlo.Shape,
        kernel: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int] | int,
        dilation: Sequence[int] | int = 1,
    ) -> Windows:
        """Build windows; one-entry lists and ints apply to all axes, an empty stride is the kernel size."""
        rank = len(sizes)

        def every(values: Sequence[int] | int) -> tuple[int, ...]:
            listed = (values,) if isinstance(values, int) else tuple(values)
            return listed * rank if len(listed) == 1 else listed

        return cls(every(kernel), every(stride or kernel), every(padding), every(dilation), sizes, counts)

    @property
    def rank(self) -> int:
        return len(self.kernel)

    def stages(self) -> list[Windows]:
        """Split large windows into successive steps of one axis each, last axis first."""
        if hlo.product(self.kernel) <= _DIRECT:
            return [self]
        return [self._along(axis) for axis in reversed(range(self.rank))]

    def _along(self, axis: int) -> Windows:
        def only(values: Sequence[int], neutral: int) -> tuple[int, ...]:
            return tuple(value if i == axis else neutral for i, value in enumerate(values))

        sizes = (*self.sizes[: axis + 1], *self.counts[axis + 1 :])
        counts = (*self.sizes[:axis], *self.counts[axis:])
        return Windows(
            only(self.kernel, 1),
            only(self.stride, 1),
            only(self.padding, 0),
            only(self.dilation, 1),
            sizes,
            counts,
        )

    def frame(self, x: Value, fill: Value | hlo.Number) -> Value:
        """Pad ``x``, and crop it at the end, to exactly the area that the windows cover."""
        low, high = self._margins(x.rank)
        return x if not any(low) and all(hlo.same_dim(h, 0) for h in high) else hlo.pad(x, fill, low, high)

    def _margins(self, rank: int) -> tuple[list[hlo.Dim], list[hlo.Dim]]:
        lead: list[hlo.Dim] = [0] * (rank - self.rank)
        high = [
            (count - 1) * s + (k - 1) * d + 1 - size - low
            for count, s, k, d, size, low in zip(
                self.counts, self.stride, self.kernel, self.dilation, self.sizes, self.padding, strict=True
            )
        ]
        return [*lead, *self.padding], [*lead, *high]

    def elements(self) -> Iterator[tuple[int, ...]]:
        """The positions within a window, in row-major order."""
        return itertools.product(*map(range, self.kernel))

    def tap(self, framed: Value, element: Sequence[int]) -> Value:
        """Take the given element of every window of a :meth:`frame`."""
        lead = framed.rank - self.rank
        starts = [e * d for e, d in zip(element, self.dilation, strict=True)]
        ends = [start + (c - 1) * s + 1 for start, c, s in zip(starts, self.counts, self.stride, strict=True)]
        return hlo.slice_(
            framed, [0] * lead + starts, [*framed.shape[:lead], *ends], [1] * lead + list(self.stride)
        )

    def untap(self, values: Value, element: Sequence[int]) -> Value:
        """Put each window's value at its element, zeros elsewhere: the adjoint of framing and :meth:`tap`."""
        lead = [0] * (values.rank - self.rank)
        low = [e * d - p for e, d, p in zip(element, self.dilation, self.padding, strict=True)]
        high = [
            size - start - (count - 1) * s - 1
            for size, start, count, s in zip(self.sizes, low, self.counts, self.stride, strict=True)
        ]
        return hlo.pad(values, 0, [*lead, *low], [*lead, *high], [*lead, *(s - 1 for s in self.stride)])

    def spread(self, values: Value, fill: hlo.Number) -> list[Value]:
        """Return, for each element of the input, the values of the windows that contain it.

        There is one list entry per window, with ``fill`` where fewer windows contain an
        element. If windows lie side by side, their values are simply repeated.
        """
        lead: list[hlo.Dim] = [0] * (values.rank - self.rank)
        if self.kernel == self.stride and set(self.dilation) == {1} and not any(self.padding):
            repeated = self._repeated(values)
            high = [size - have for size, have in zip(self.sizes, repeated.shape[len(lead) :], strict=True)]
            return [hlo.pad(repeated, fill, [0] * values.rank, [*lead, *high])]
        seen, stretched = self.stretch(values, fill)
        return [seen.tap(stretched, element) for element in seen.elements()]

    def stretch(self, values: Value, fill: hlo.Number) -> tuple[Windows, Value]:
        """Return the adjoint windows, and the frame that they slide over.

        There is one adjoint window per element of the input. It covers the windows that contain this element.
        The frame has ``values``, stretched by the stride and padded with ``fill``. An adjoint window's last
        element is the window whose first element is the input element.
        """
        lead: list[hlo.Dim] = [0] * (values.rank - self.rank)
        low = [(k - 1) * d - p for k, d, p in zip(self.kernel, self.dilation, self.padding, strict=True)]
        high = [
            size + p - (count - 1) * s - 1
            for size, p, count, s in zip(self.sizes, self.padding, self.counts, self.stride, strict=True)
        ]
        between = [0] * len(lead) + [s - 1 for s in self.stride]
        stretched = hlo.pad(values, fill, [*lead, *low], [*lead, *high], between)
        ones, zeros = (1,) * self.rank, (0,) * self.rank
        return Windows(self.kernel, ones, zeros, self.dilation, self.sizes, self.sizes), stretched

    def _repeated(self, values: Value) -> Value:
        lead = values.rank - self.rank
        shape, dims, merged = list(values.shape[:lead]), list(range(lead)), list(values.shape[:lead])
        for count, k in zip(self.counts, self.kernel, strict=True):
            dims.append(len(shape))
            shape += [count, k]
            merged.append(count * k)
        return hlo.reshape(hlo.broadcast_in_dim(values, shape, dims), merged)


def places(x: Value, rank: int) -> Value:
    """Return each element's row-major position within the last ``rank`` axes, as int32 or int64."""
    sizes = x.shape[-rank:]
    volume = hlo.static_dim(hlo.product(sizes))
    dtype = INT64 if volume is not None and volume >= 1 << 31 else INT32
    total = hlo.zeros_like(hlo.iota(x.shape, x.rank - 1, dtype))
    for axis, size in zip(range(x.rank - rank, x.rank), sizes, strict=True):
        extent = hlo.convert(hlo.dim_scalar(size), dtype)
        total = total * hlo.broadcast_to(extent, x.shape) + hlo.iota(x.shape, axis, dtype)
    return total


def first_maximum(values: Value, where: Value, axes: Sequence[int]) -> tuple[Value, Value]:
    """Return the largest of ``values`` along ``axes`` and its entry of ``where``.

    Of equal values, the one with the smallest ``where`` counts. NaN is larger than
    everything; of several NaNs, the one with the largest ``where`` counts (as in
    PyTorch's pooling kernels). An empty range gives the lowest value.
    """

    def better(a: Value, at_a: Value, b: Value, at_b: Value) -> list[Value]:
        take = (b > a) | (hlo.eq(a, b) & (at_b < at_a))
        if values.dtype.is_floating:
            nan_a, nan_b = hlo.is_nan(a), hlo.is_nan(b)
            take = hlo.select(nan_b, ~nan_a | (at_b > at_a), take)
        return [hlo.select(take, b, a), hlo.select(take, at_b, at_a)]

    largest, at = hlo.reduce(
        [values, where], [hlo.lowest(values.dtype), hlo.highest(where.dtype)], axes, better
    )
    return largest, at
