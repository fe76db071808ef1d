"""Correlation of a batch of signals with kernels, and its two adjoints: the basis of convolutions.

Signals are ``(n, c, *spatial)``, kernels ``(o, c / groups, *kernel)``, and
:class:`~.windows.Windows` say how a kernel moves. Results have the op-math
dtype of the operands.

Each map is one ``stablehlo.convolution``, except where an equivalent form is far
faster on the XLA CPU engine. Signals of one channel become a matrix product of their
windows. Depthwise kernels become products of shifted signals, which XLA recomputes
for each operation that reads them. Adjoints whose kernels do not overlap become a
rearranged matrix product. Fewer windows than channels become a matrix product of
columns, which saves the engine from rearranging the kernel for only a few uses.

Not here: ATen's convolution, with bias and transposition (``aten.convolution``).
"""

from __future__ import annotations

import functools
import operator

from .. import hlo
from ..hlo import Value
from .common import static_size
from .promotion import opmath
from .windows import Windows

_MOST_TAPS = 128
"""Larger depthwise kernels use the convolution, because the program would become too long."""
_LONG_SIGNAL = 128
"""From this many spatial elements on, matrix products handle one signal at a time."""

_FEW_WINDOWS = 1024
"""Up to this many windows in a batch, the gradient in the kernel is a product of columns."""


def correlate(x: Value, kernel: Value, windows: Windows, groups: int) -> Value:
    """Cross-correlation: ``(n, c, *sizes)`` to ``(n, o, *counts)``."""
    if kernel.shape[1] == 1 and _volume(windows) <= _MOST_TAPS:
        framed = windows.frame(hlo.convert(x, opmath(x.dtype)), 0)
        form = _product_of_windows if groups == 1 else _shifted_products
        return form(framed, kernel, windows)
    if groups == 1 and _volume(windows) > 1 and _count(x, windows) < kernel.shape[0]:
        rows = hlo.reshape(kernel, (kernel.shape[0], hlo.product(kernel.shape[1:])))
        wide = _mixed(columns(x, windows), rows)
        return hlo.reshape(wide, (*wide.shape[:2], *windows.counts))
    return hlo.convolution(
        x,
        kernel,
        strides=windows.stride,
        padding=_sides(windows),
        rhs_dilation=windows.dilation,
        groups=groups,
        accumulate=opmath(x.dtype),
    )


def _sides(windows: Windows) -> list[tuple[int, int]]:
    """Return the padding before and after each axis, with less after if more windows than needed would fit.

    More would fit in the gradient of a transposed convolution whose output padding is a stride or more.
    """
    sides = []
    for size, count, k, s, p, d in _axes(windows):
        spare = hlo.static_dim(size + 2 * p - d * (k - 1) - 1 - (count - 1) * s)
        sides.append((p, p if spare is None or spare < s else p - spare))
    return sides


def spread(y: Value, kernel: Value, windows: Windows, groups: int) -> Value:
    """The adjoint of :func:`correlate` in its signal: ``(n, o, *counts)`` to ``(n, c, *sizes)``."""
    o, c = kernel.shape[:2]
    spatial = list(range(2, kernel.rank))
    if c == 1 and o == groups and _volume(windows) <= _MOST_TAPS:
        seen, stretched = windows.stretch(hlo.convert(y, opmath(y.dtype)), 0)
        return _shifted_products(stretched, hlo.reverse(kernel, spatial), seen)
    if (
        groups == 1
        and all(k <= s for k, s in zip(windows.kernel, windows.stride, strict=True))
        and _dense(windows)
    ):
        return _side_by_side(y, kernel, windows)
    mirrored = hlo.reverse(kernel, spatial)
    if groups != 1:  # (g·o, c, …) to (o, g·c, …)
        split = hlo.reshape(mirrored, (groups, o // groups, *mirrored.shape[1:]))
        mirrored = hlo.reshape(hlo.move_axis(split, 0, 1), (o // groups, groups * c, *mirrored.shape[2:]))
    padding = []
    for size, count, k, s, p, d in _axes(windows):
        low = d * (k - 1) - p
        high = hlo.static_dim(size + p - (count - 1) * s - 1)
        # If the size is symbolic, pad enough for every remainder, and cut the result below.
        padding.append((low, low + s - 1 if high is None else high))
    result = hlo.convolution(
        y,
        mirrored,
        strides=[1] * windows.rank,
        padding=padding,
        lhs_dilation=windows.stride,
        rhs_dilation=windows.dilation,
        groups=groups,
        layout=("bf", "io", "bf"),
        accumulate=opmath(y.dtype),
    )
    return hlo.slice_(result, [0] * result.rank, [*result.shape[:2], *windows.sizes])


def kernel_gradient(x: Value, y: Value, windows: Windows, groups: int) -> Value:
    """The adjoint of :func:`correlate` in its kernel: ``(o, c / groups, *kernel)``.

    ``x`` is correlated with ``y``. Batch and channel swap roles, and the stride
    becomes the dilation.
    """
    if x.shape[1] == y.shape[1] == groups and _volume(windows) <= _MOST_TAPS:
        return _products_of_shifted(x, y, windows)
    if groups == 1 and (_volume(windows) == 1 or _count(x, windows) <= _FEW_WINDOWS):
        signals = hlo.reshape(y, (*y.shape[:2], hlo.product(y.shape[2:])))
        product = hlo.dot_general(
            signals, columns(x, windows), contract=([0, 2], [0, 2]), accumulate=opmath(x.dtype)
        )
        return hlo.reshape(product, (y.shape[1], x.shape[1], *windows.kernel))
    padding = []
    for size, count, k, s, p, d in _axes(windows):
        high = (count - 1) * s + 1 + d * (k - 1) - size - p
        padding.append((p, static_size(high, "the weight gradient of a strided convolution")))
    if groups != 1:  # (n, g·c, …) to (c, g·n, …)
        n, c = x.shape[:2]
        split = hlo.reshape(x, (n, groups, c // groups, *x.shape[2:]))
        order = [2, 1, 0, *range(3, split.rank)]
        x = hlo.reshape(hlo.transpose(split, order), (c // groups, groups * n, *x.shape[2:]))
    return hlo.convolution(
        x,
        y,
        strides=windows.dilation,
        padding=padding,
        rhs_dilation=windows.stride,
        groups=groups,
        layout=("fb" if groups == 1 else "bf", "io", "fb"),
        accumulate=opmath(x.dtype),
    )


def columns(x: Value, windows: Windows) -> Value:
    """Every window of ``(…, c, *sizes)`` as a column: ``(…, c · volume, count)``."""
    lead = x.shape[: x.rank - windows.rank]
    framed = windows.frame(x, 0)
    if _tiles(windows):
        return _tiled_columns(framed, windows)
    taps = [hlo.expand_dims(windows.tap(framed, element), [len(lead)]) for element in windows.elements()]
    together = hlo.concatenate(taps, len(lead))
    return hlo.reshape(together, (*lead[:-1], lead[-1] * len(taps), hlo.product(windows.counts)))


def _tiled_columns(framed: Value, windows: Windows) -> Value:
    """:func:`columns` of windows that lie side by side, by one transposition."""
    rank, at = windows.rank, framed.rank - windows.rank
    lead = framed.shape[:at]
    pairs = [size for pair in zip(windows.counts, windows.kernel, strict=True) for size in pair]
    inside = [at + 2 * axis + 1 for axis in range(rank)]
    order = [*range(at), *inside, *(axis - 1 for axis in inside)]
    tiles = hlo.transpose(hlo.reshape(framed, (*lead, *pairs)), order)
    return hlo.reshape(tiles, (*lead[:-1], lead[-1] * _volume(windows), hlo.product(windows.counts)))


def _tiles(windows: Windows) -> bool:
    """True if each window begins where the one before it ends."""
    return windows.kernel == windows.stride and _dense(windows)


def _count(x: Value, windows: Windows) -> float:
    """How many windows the signals of a batch have; infinity if the number is symbolic."""
    known = hlo.static_dim(x.shape[0] * hlo.product(windows.counts))
    return float("inf") if known is None else known


def _axes(windows: Windows) -> zip[tuple[hlo.Dim, hlo.Dim, int, int, int, int]]:
    """Size, count, kernel, stride, padding and dilation of each axis."""
    w = windows
    return zip(w.sizes, w.counts, w.kernel, w.stride, w.padding, w.dilation, strict=True)


def _volume(windows: Windows) -> int:
    return int(hlo.product(windows.kernel))


def _dense(windows: Windows) -> bool:
    """True if no window has holes."""
    return all(d == 1 or k == 1 for d, k in zip(windows.dilation, windows.kernel, strict=True))


def _shifted_products(framed: Value, kernel: Value, windows: Windows) -> Value:
    """Correlate with a kernel ``(g · m, 1, *kernel)``: sum each of its elements times the shifted signal."""
    n, g = framed.shape[:2]
    m = kernel.shape[0] // g
    shape = (n, g, m, *windows.counts)
    factors = hlo.reshape(hlo.convert(kernel, framed.dtype), (g, m, *windows.kernel))
    parts = []
    for element in windows.elements():
        tap = hlo.broadcast_in_dim(windows.tap(framed, element), shape, [0, 1, *range(3, len(shape))])
        factor = hlo.slice_(factors, [0, 0, *element], [g, m, *(e + 1 for e in element)])
        parts.append(tap * hlo.broadcast_in_dim(hlo.reshape(factor, (g, m)), shape, [1, 2]))
    return hlo.reshape(functools.reduce(operator.add, parts), (n, g * m, *windows.counts))


def _product_of_windows(framed: Value, kernel: Value, windows: Windows) -> Value:
    """Correlate signals of one channel by a matrix product: each window is a row, each kernel a column."""
    n, o, last = framed.shape[0], kernel.shape[0], windows.rank + 1
    taps = [windows.tap(framed, element) for element in windows.elements()]
    rows = hlo.concatenate([hlo.reshape(tap, (n, *windows.counts, 1)) for tap in taps], last)
    factors = hlo.reshape(hlo.convert(kernel, framed.dtype), (o, _volume(windows)))
    return hlo.move_axis(hlo.dot_general(rows, factors, contract=([last], [1])), last, 1)


def _products_of_shifted(x: Value, y: Value, windows: Windows) -> Value:
    """Compute :func:`kernel_gradient` of depthwise kernels: sum each element's inputs times ``y``."""
    framed = windows.frame(hlo.convert(x, opmath(x.dtype)), 0)
    results = hlo.convert(y, framed.dtype)
    sums = [
        hlo.reduce_sum(windows.tap(framed, element) * results, [0, *range(2, y.rank)])
        for element in windows.elements()
    ]
    together = hlo.concatenate([hlo.expand_dims(part, [1]) for part in sums], 1)
    return hlo.reshape(together, (y.shape[1], 1, *windows.kernel))


def _mixed(x: Value, matrix: Value) -> Value:
    """Multiply the channels of ``(n, c, *spatial)`` by the matrix ``(o, c)``."""
    n, c, *spatial = x.shape
    o = matrix.shape[0]
    length = hlo.product(spatial)
    signals = hlo.reshape(x, (n, c, length))
    known = hlo.static_dim(length)
    if known is not None and known >= _LONG_SIGNAL:
        result = hlo.dot(hlo.broadcast_to(matrix, (n, o, c)), signals, accumulate=opmath(x.dtype))
    else:
        product = hlo.dot_general(matrix, signals, contract=([1], [1]), accumulate=opmath(x.dtype))
        result = hlo.move_axis(product, 1, 0)
    return hlo.reshape(result, (n, o, *spatial))


def _side_by_side(y: Value, kernel: Value, windows: Windows) -> Value:
    """Compute :func:`spread` for windows that do not overlap: each result has at most one source."""
    n, c, rank = y.shape[0], kernel.shape[1], windows.rank
    elements = hlo.reshape(hlo.move_axis(kernel, 0, -1), (c * _volume(windows), kernel.shape[0]))
    blocks = hlo.reshape(_mixed(y, elements), (n, c, *windows.kernel, *windows.counts))
    order = [0, 1, *(axis for i in range(rank) for axis in (2 + rank + i, 2 + i))]
    pairs = hlo.transpose(blocks, order)
    gaps = [s - k for s, k in zip(windows.stride, windows.kernel, strict=True)]
    pairs = hlo.pad(pairs, 0, [0] * pairs.rank, [0, 0, *(edge for gap in gaps for edge in (0, gap))])
    merged = [count * s for count, s in zip(windows.counts, windows.stride, strict=True)]
    result = hlo.reshape(pairs, (n, c, *merged))
    low = [-p for p in windows.padding]
    high = [size + p - have for size, p, have in zip(windows.sizes, windows.padding, merged, strict=True)]
    return hlo.pad(result, 0, [0, 0, *low], [0, 0, *high])
