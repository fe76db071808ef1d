"""The same elements in another shape or order: view, expand, permute, flip, repeat, cat and relatives.

Not here: parts of a tensor (``slicing``), views of raw storage (``strided``),
functional updates through a view (``view_updates``), copies and views as another
dtype (``conversion``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ... import hlo
from ...dtypes import COPYABLE
from ...hlo import Value
from ...torch_internals.operators import namespace
from ..common import axis_of, flatten
from ..composites import composed_whole
from ..registry import Spec, aten_overloads, lowers

aten = namespace("aten")


@lowers(
    aten.alias.default,
    aten.alias_copy.default,
    aten.detach.default,
    aten.detach_copy.default,
    dtypes=COPYABLE,
)
def alias(self: Value) -> Value:
    """The tensor itself. ``detach`` affects only autograd, which runs before a graph is lowered."""
    return self


# The shape of PyTorch's result already reflects all of these parameters.
@lowers(
    aten.view.default,
    aten.view_copy.default,
    aten._unsafe_view.default,
    aten.unsqueeze.default,
    aten.unsqueeze_copy.default,
    aten.squeeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.squeeze_copy.default,
    aten.squeeze_copy.dim,
    aten.squeeze_copy.dims,
    *aten_overloads(["_reshape_copy"]),
    dtypes=COPYABLE,
    ignores=("size", "stride", "dim"),
)
def view(self: Value, out: Spec) -> Value:
    """The same elements in row-major order, in another shape."""
    return hlo.reshape(self, out.shape)


def _refuses_other_strides(arguments: Mapping[str, Any]) -> str | None:
    x, size, stride = (arguments[name] for name in ("self", "size", "stride"))
    try:
        whole = list(x.view(size).stride()) == list(stride)
    except (RuntimeError, ValueError):
        whole = False
    return (
        None if whole else f"strides {list(stride)} do not show each element once, in order: use as_strided"
    )


@lowers(
    *aten_overloads(["_reshape_alias", "_reshape_alias_copy"]),
    dtypes=COPYABLE,
    ignores=("size", "stride"),
    refuses=_refuses_other_strides,
)
def reshape_alias(self: Value, out: Spec) -> Value:
    """The same as ``view``; other strides than those that ``view`` returns are refused."""
    return hlo.reshape(self, out.shape)


@lowers(aten.expand.default, aten.expand_copy.default, dtypes=COPYABLE, ignores=("size",))
def expand(self: Value, out: Spec) -> Value:
    """Stretch axes of size 1, and add axes in front."""
    return hlo.broadcast_to(self, out.shape)


@lowers(aten.permute.default, aten.permute_copy.default, dtypes=COPYABLE)
def permute(self: Value, dims: list[int]) -> Value:
    """Reorder the axes."""
    return hlo.transpose(self, [axis_of(dim, self.rank) for dim in dims])


@lowers(aten.transpose.int, aten.transpose_copy.int, dtypes=COPYABLE)
def transpose(self: Value, dim0: int, dim1: int) -> Value:
    """Swap two axes."""
    order = list(range(self.rank))
    if order:
        a, b = axis_of(dim0, self.rank), axis_of(dim1, self.rank)
        order[a], order[b] = b, a
    return hlo.transpose(self, order)


@lowers(aten.t.default, aten.t_copy.default, dtypes=COPYABLE)
def t(self: Value) -> Value:
    """The transposed matrix; tensors with fewer axes are unchanged."""
    return hlo.transpose(self, list(reversed(range(self.rank))))


@lowers(aten.flip.default, dtypes=COPYABLE)
def flip(self: Value, dims: list[int]) -> Value:
    """Reverse the order of elements along ``dims``."""
    return hlo.reverse(self, [axis_of(dim, self.rank) for dim in dims] if self.rank else [])


@lowers(aten.roll.default, dtypes=COPYABLE)
def roll(self: Value, shifts: list[int], dims: list[int], out: Spec) -> Value:
    """Shift elements cyclically by ``shifts`` along ``dims``; without dims, in the flattened tensor."""
    axes = [axis_of(dim, self.rank) for dim in dims]

    def kernel(x: Value) -> Value:
        if not dims:
            return hlo.reshape(_rolled(flatten(x), 0, shifts[0]), x.shape)
        for axis, shift in zip(axes, shifts, strict=True):
            x = _rolled(x, axis, shift)
        return x

    return composed_whole("roll", [self], kernel, out, {"axes": axes, "shifts": shifts})


def _rolled(x: Value, axis: int, shift: hlo.Dim) -> Value:
    size = x.shape[axis]
    if hlo.same_dim(size, 0):
        return x
    # With symbolic sizes, the cut is a symbolic expression too. It lies within the axis.
    cut = (size - shift) % size
    if hlo.same_dim(cut, 0):
        return x
    return hlo.concatenate([hlo.slice_axis(x, axis, cut, size), hlo.slice_axis(x, axis, 0, cut)], axis)


@lowers(aten.repeat.default, dtypes=COPYABLE)
def repeat(self: Value, repeats: list[hlo.Dim], out: Spec) -> Value:
    """Repeat the whole tensor along each axis; surplus ``repeats`` add axes in front."""
    lead = len(repeats) - self.rank
    sizes = [1] * lead + list(self.shape)
    pairs = [dim for count, size in zip(repeats, sizes, strict=True) for dim in (count, size)]
    odd = [2 * axis + 1 for axis in range(lead, len(repeats))]
    return hlo.reshape(hlo.broadcast_in_dim(self, pairs, odd), out.shape)


@lowers(aten.cat.default, dtypes=COPYABLE)
def cat(tensors: list[Value], dim: int, out: Spec) -> Value:
    """Join tensors along an axis, in their common dtype; empty 1-d tensors are ignored."""
    parts = [x for x in tensors if not hlo.same_shape(x.shape, (0,))] or tensors[:1]
    axis = axis_of(dim, len(out.shape))
    return hlo.concatenate([hlo.convert(x, out.dtype) for x in parts], axis)


@lowers(aten.stack.default, dtypes=COPYABLE)
def stack(tensors: list[Value], dim: int, out: Spec) -> Value:
    """Join tensors of one shape along a new axis, in their common dtype."""
    axis = axis_of(dim, len(out.shape))
    return hlo.concatenate([hlo.expand_dims(hlo.convert(x, out.dtype), [axis]) for x in tensors], axis)
