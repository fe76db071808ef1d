"""Histograms: how many elements, or how much weight, lies between edges.

Not here: ``bincount``, whose size depends on data. A bin includes its left edge;
the last bin includes its right edge too. NaN and elements outside all bins do
not count.
"""

from __future__ import annotations

from collections.abc import Sequence

from ... import hlo
from ...dtypes import BOOLEAN, COMPLEX, FLOATING, INT64, INTEGRAL, DType
from ...hlo import Value
from ...torch_internals.operators import namespace
from ..common import fill, flatten, is_empty
from ..conditions import HISTC, HISTOGRAM
from ..promotion import opmath
from ..registry import Spec, lowers
from .scattering import add
from .searching import insertion_points

aten = namespace("aten")


def _edges(low: Value, high: Value, bins: int) -> Value:
    """``bins + 1`` equal steps from ``low`` to ``high`` (0-d), computed from both ends like ``linspace``."""
    shape = (bins + 1,)
    first, last = fill(low, shape), fill(high, shape)
    step = (last - first) / float(max(bins, 1))  # without bins there is one edge
    place = hlo.iota(shape, 0, INT64)
    rising = first + step * hlo.convert(place, low.dtype)
    falling = last - step * hlo.convert(bins - place, low.dtype)
    return hlo.select(place < max(bins + 1, 2) // 2, rising, falling)


def _range(x: Value, bounds: Sequence[float] | None, margin: float) -> tuple[Value, Value]:
    """Return the outer edges: ``bounds``, or the extremes of 1-d ``x`` (0 and 1 if it is empty).

    If both edges are equal, each is moved outward by ``margin``.
    """
    if bounds is not None:
        low, high = hlo.scalar(float(bounds[0]), x.dtype), hlo.scalar(float(bounds[1]), x.dtype)
    elif is_empty(x.shape):
        low, high = hlo.scalar(0.0, x.dtype), hlo.scalar(1.0, x.dtype)
    else:
        low, high = hlo.reduce_min(x, [0]), hlo.reduce_max(x, [0])
    same = hlo.eq(low, high)
    return hlo.select(same, low - margin, low), hlo.select(same, high + margin, high)


def _inside(x: Value, low: Value, high: Value) -> Value:
    return (x >= fill(low, x.shape)) & (x <= fill(high, x.shape))


def _counted(where: Value, bins: int, weight: Value | None, dtype: DType) -> Value:
    """Add up the weights (1 each by default) at each of ``bins`` positions; position −1 is dropped."""
    amounts = hlo.full(where.shape, 1, dtype) if weight is None else hlo.convert(flatten(weight), dtype)
    return hlo.put(hlo.full((bins,), 0, dtype), where, amounts, 0, add)


@lowers(aten.histc.default, dtypes=FLOATING, ignores=("bins",), values=[HISTC])
def histc(self: Value, min: float = 0, max: float = 0, *, out: Spec) -> Value:
    """Counts in equal bins between ``min`` and ``max``. If these are equal, the data's extremes are used."""
    bins, wide = out.shape[0], opmath(out.dtype)
    x = hlo.convert(flatten(self), wide)
    given = (min, max) if min != max or is_empty(x.shape) else None
    low, high = _range(x, given, 1.0)
    # PyTorch uses this formula here instead of searching the edges.
    place = (x - fill(low, x.shape)) * float(bins) / fill(high - low, x.shape)
    position = hlo.minimum(hlo.convert(place, INT64), bins - 1)
    where = hlo.select(_inside(x, low, high), position, -1)
    return hlo.convert(_counted(where, bins, None, wide), out.dtype)


def _positions(x: Value, edges: Value) -> Value:
    """Return the bin of each element of 1-d ``x``, or −1 if it is outside of all bins."""
    bins = edges.shape[0] - 1
    low = hlo.reshape(hlo.slice_axis(edges, 0, 0, 1), ())
    high = hlo.reshape(hlo.slice_axis(edges, 0, bins, bins + 1), ())
    found = hlo.minimum(insertion_points(edges, x, right=True) - 1, bins - 1)
    return hlo.select(_inside(x, low, high), found, -1)


def _histogram(
    columns: Sequence[Value], edges: Sequence[Value], weight: Value | None, density: bool, out: Spec
) -> Value:
    """Count points over a grid of edges; each column is the 1-d values of one coordinate."""
    where: Value | None = None
    edges = [hlo.convert(edge, columns[0].dtype) for edge in edges]
    for column, edge in zip(columns, edges, strict=True):
        one = _positions(column, edge)
        if where is None:
            where = one
        else:
            where = hlo.select((where < 0) | (one < 0), -1, where * (edge.shape[0] - 1) + one)
    assert where is not None
    flat = _counted(where, hlo.product(out.shape), weight, columns[0].dtype)
    result = hlo.reshape(flat, out.shape)
    if density:
        result = result / fill(hlo.reduce_sum(flat, [0]), out.shape)
        for axis, edge in enumerate(edges):
            count = edge.shape[0]
            width = hlo.slice_axis(edge, 0, 1, count) - hlo.slice_axis(edge, 0, 0, count - 1)
            result = result / hlo.broadcast_in_dim(width, out.shape, [axis])
    return hlo.convert(result, out.dtype)


@lowers(aten.histogram.bins_tensor, dtypes=FLOATING)
def histogram(
    self: Value,
    bins: Value,
    *,
    weight: Value | None = None,
    density: bool = False,
    out: tuple[Spec, Spec],
) -> tuple[Value, Value]:
    """Counts between given edges, and the edges."""
    x = hlo.convert(flatten(self), opmath(self.dtype))
    return _histogram([x], [bins], weight, density, out[0]), bins


@lowers(aten.histogram.bin_ct, dtypes=FLOATING, values=[HISTOGRAM])
def histogram_bin_ct(
    self: Value,
    bins: int = 100,
    *,
    range: Sequence[float] | None = None,
    weight: Value | None = None,
    density: bool = False,
    out: tuple[Spec, Spec],
) -> tuple[Value, Value]:
    """Counts in equal bins over ``range`` (by default, the range of the data), and the edges."""
    x = hlo.convert(flatten(self), opmath(self.dtype))
    (edges,) = _grid([x], [bins], range, self.dtype)
    return _histogram([x], [edges], weight, density, out[0]), edges


def _columns(self: Value) -> list[Value]:
    """Split ``(…, d)`` points into ``d`` 1-d values, one per coordinate; 16-bit floats become float32."""
    width = self.shape[-1]
    points = hlo.reshape(hlo.convert(self, opmath(self.dtype)), (hlo.product(self.shape[:-1]), width))
    return [hlo.squeeze(hlo.slice_axis(points, 1, axis, axis + 1), [1]) for axis in range(width)]


def _grid(
    columns: Sequence[Value], bins: Sequence[int], bounds: Sequence[float] | None, dtype: DType
) -> list[Value]:
    """Return equally spaced edges for each column, in ``dtype``."""
    ranges = [None if bounds is None else bounds[2 * i : 2 * i + 2] for i in range(len(columns))]
    return [
        hlo.convert(_edges(*_range(column, bound, 0.5), count), dtype)
        for column, bound, count in zip(columns, ranges, bins, strict=True)
    ]


# Weights and density do not affect the edges.
@lowers(
    aten._histogramdd_bin_edges.default,
    dtypes=FLOATING,
    gaps=dict.fromkeys(
        INTEGRAL | BOOLEAN | COMPLEX, "only floating-point numbers are counted between such edges"
    ),
    ignores=("weight", "density"),
    values=[HISTOGRAM],
)
def histogramdd_bin_edges(
    self: Value, bins: Sequence[int], *, range: Sequence[float] | None = None
) -> list[Value]:
    """Equally spaced edges for each column of ``(…, d)`` points."""
    return _grid(_columns(self), bins, range, self.dtype)


@lowers(aten._histogramdd_from_bin_cts.default, dtypes=FLOATING, values=[HISTOGRAM])
def histogramdd_from_bin_cts(
    self: Value,
    bins: Sequence[int],
    *,
    range: Sequence[float] | None = None,
    weight: Value | None = None,
    density: bool = False,
    out: Spec,
) -> Value:
    """Counts of ``(…, d)`` points in a grid of equal bins."""
    columns = _columns(self)
    return _histogram(columns, _grid(columns, bins, range, self.dtype), weight, density, out)


@lowers(aten._histogramdd_from_bin_tensors.default, dtypes=FLOATING)
def histogramdd_from_bin_tensors(
    self: Value, bins: Sequence[Value], *, weight: Value | None = None, density: bool = False, out: Spec
) -> Value:
    """Counts of ``(…, d)`` points between given edges."""
    return _histogram(_columns(self), bins, weight, density, out)
