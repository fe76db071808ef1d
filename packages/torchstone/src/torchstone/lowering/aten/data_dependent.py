"""Operators whose result size depends on data, in the forms that take a size.

These are ``nonzero_static``, ``repeat_interleave`` with ``output_size``, and ``masked_select``
with a declared size. The forms without one (``nonzero``, ``masked_select``, ``unique``,
``unique_consecutive``, ``bincount``, indexing by a bool mask) cannot be programs with
static shapes. They are reported as unsupported with that reason.
"""

from __future__ import annotations

from ... import hlo
from ...dtypes import BOOL, COPYABLE, INT32, INT64
from ...hlo import Value
from ...torch_internals.operators import namespace
from ..common import is_empty
from ..composites import Expand, expanded
from ..conditions import REPEATS
from ..own import own
from ..registry import Spec, lowers
from .masking import ordinal
from .searching import insertion_points

aten = namespace("aten")


@lowers(aten.nonzero_static.default, dtypes=COPYABLE, ignores=("size",))
def nonzero_static(self: Value, *, fill_value: int = -1, out: Spec) -> Value:
    """Coordinates of the first ``size`` elements that are not zero, then rows of ``fill_value``."""
    if is_empty(self.shape) or is_empty(out.shape):
        return hlo.full(out.shape, fill_value, out.dtype)
    size = out.shape[0]
    chosen = hlo.reshape(hlo.convert(self, BOOL), (self.numel,))
    # Scatter drops updates past the end.
    where = hlo.select(chosen, ordinal(chosen), size)
    places = hlo.iota(chosen.shape, 0, INT64)
    found = hlo.put(hlo.full((size,), -1, INT64), where, places, 0, lambda _, new: new)
    missing = found < 0
    columns, rest = [], found
    for extent in reversed(self.shape):
        columns.append(hlo.select(missing, fill_value, hlo.remainder(rest, hlo.full_like(rest, extent))))
        rest = rest / hlo.full_like(rest, extent)
    return hlo.concatenate([hlo.expand_dims(column, [1]) for column in reversed(columns)], 1)


# Without ``output_size`` the result has an unknown size and lowering stops before this point.
@lowers(
    aten.repeat_interleave.Tensor, dtypes=frozenset({INT32, INT64}), ignores=("output_size",), values=REPEATS
)
def repeat_interleave(repeats: Value, out: Spec) -> Value:
    """Repeat each index of 1-d ``repeats`` as many times as the element at that index says."""
    counts = hlo.convert(repeats, INT64)
    ends = hlo.associative_scan([counts], 0, lambda a, b: a + b)[0]
    return hlo.convert(insertion_points(ends, hlo.iota(out.shape, 0, INT64), right=True), out.dtype)


@lowers(own.masked_select.default, dtypes=COPYABLE)
def masked_select(self: Value, mask: Value, size: int, expand: Expand, out: Spec) -> list[Value]:
    """The first ``size`` elements that ``mask`` selects, then zeros."""
    return expanded("masked_select", [self, mask], expand, out, {"size": size})
