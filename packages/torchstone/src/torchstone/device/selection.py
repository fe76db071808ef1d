"""Operators whose result sizes depend on their inputs' values: one program counts, a second one computes.

The second program is made for the next power of two of the count, so that one program serves many counts. The
result is the first part of what it computes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..torch_internals.operators import namespace
from .operators import Operator
from .storage import DEVICE_TYPE
from .transfers import to_cpu

aten = namespace("aten")
Tensor = torch.Tensor
_MASKS = (torch.bool, torch.uint8)


def _room(count: int, most: int) -> int:
    """Return the number of elements that the second program is made for."""
    return min(1 << max(count - 1, 0).bit_length(), most)


def nonzero(self: Tensor) -> Tensor:
    """Return the coordinates of the elements that are not zero."""
    count = int(aten.count_nonzero.default(self).item())
    return aten.nonzero_static.default(self, size=_room(count, self.numel()))[:count]


def _places(flat: Tensor) -> tuple[Tensor, int]:
    """Return the positions of a 1-d mask's true elements, padded with zeros, and their number."""
    count = int(aten.count_nonzero.default(flat).item())
    found = aten.nonzero_static.default(flat, size=_room(count, flat.numel()), fill_value=0)
    return found.view(-1), count


def masked_select(self: Tensor, mask: Tensor) -> Tensor:
    """Return the elements at which ``mask`` is true."""
    if mask.dtype is not torch.bool:
        raise RuntimeError("masked_select: expected BoolTensor for mask")
    values, chosen = torch.broadcast_tensors(self, mask)
    places, count = _places(chosen.reshape(-1))
    return values.reshape(-1).index_select(0, places)[:count]


def unique2(
    self: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the distinct elements in ascending order."""
    flat = self.reshape(-1)
    ordered, order = flat.sort()
    values, group, counts = _runs(ordered)
    inverse = flat.new_empty(0, dtype=torch.int64)
    if return_inverse:
        inverse = torch.empty_like(group).scatter_(0, order, group).view(self.shape)
    return values, inverse, counts if return_counts else flat.new_empty(0, dtype=torch.int64)


def unique(self: Tensor, sorted: bool = True, return_inverse: bool = False) -> tuple[Tensor, Tensor]:
    """Return the distinct elements, as :func:`unique2` does; derivatives call this operator."""
    return unique2(self, sorted, return_inverse)[:2]


def unique_consecutive(
    self: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the first element, or slice along ``dim``, of each run of equal ones."""
    if dim is not None and not (self.dim() == 1 and dim in (0, -1)):
        if not self.numel():
            return _of_nothing(aten.unique_consecutive.default, self, return_inverse, return_counts, dim)
        return _distinct(self, self.movedim(dim, 0), dim)
    values, group, counts = _runs(self.reshape(-1))
    empty = self.new_empty(0, dtype=torch.int64)
    return values, group.view(self.shape) if return_inverse else empty, counts if return_counts else empty


def unique_dim(
    self: Tensor, dim: int, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the distinct slices along ``dim``, sorted by their elements."""
    if not self.numel():
        return _of_nothing(aten.unique_dim.default, self, dim, sorted, return_inverse, return_counts)
    slices = self.movedim(dim, 0)
    columns = slices.reshape(len(slices), -1)
    order = torch.arange(len(slices), device=self.device)
    for column in range(columns.shape[1] - 1, -1, -1):
        # The column's number is a tensor, so that one program serves all columns.
        keys = columns.index_select(1, torch.tensor([column]).to(self.device)).view(-1)
        order = order.index_select(0, keys.index_select(0, order).sort(stable=True).indices)
    values, group, counts = _distinct(self, slices.index_select(0, order), dim)
    return values, torch.empty_like(group).scatter_(0, order, group), counts


def _of_nothing(operator: Any, self: Tensor, *given: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the result for a tensor without elements on the CPU, which raises if it refuses the call."""
    values, inverse, counts = (one.to(DEVICE_TYPE) for one in operator(to_cpu(self), *given))
    return values, inverse, counts


def _distinct(self: Tensor, slices: Tensor, dim: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return :func:`_runs` of slices, with the first slice of each run moved back to ``dim``."""
    starts = torch.ones(len(slices), dtype=torch.bool, device=self.device)
    if len(slices) > 1:
        starts[1:] = (slices[1:] != slices[:-1]).reshape(len(slices) - 1, -1).any(1)
    places, count, group, counts = _groups(starts)
    return slices.index_select(0, places)[:count].movedim(0, dim), group, counts


def _runs(flat: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the first element of each run of a 1-d tensor, each element's run number, and run lengths."""
    total = flat.numel()
    starts = torch.ones_like(flat, dtype=torch.bool)
    if total > 1:
        starts[1:] = flat[1:] != flat[:-1]
    places, count, group, counts = _groups(starts)
    return flat.index_select(0, places)[:count], group, counts


def _groups(starts: Tensor) -> tuple[Tensor, int, Tensor, Tensor]:
    """Return the runs that start where the mask ``starts`` is true.

    These are the positions of the starts (padded), the number of runs, each element's run number, and the
    run lengths.
    """
    group = starts.cumsum(0) - 1
    places, count = _places(starts)
    counts = torch.zeros_like(places)
    if starts.numel():
        counts = counts.index_add_(0, group, torch.ones_like(group))
    return places, count, group, counts[:count]


def bincount(self: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """Return how often each number occurs, or the sum of its weights."""
    whole = self.dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
    if minlength < 0 or not whole or self.dim() != 1 or (weights is not None and weights.shape != self.shape):
        return _bincount(self, weights, minlength)
    if not self.numel():  # whatever the dtype of the weights
        return self.new_zeros(minlength, dtype=torch.int64)
    low, high = self.aminmax()
    if low.item() < 0:
        return _bincount(self, weights, minlength)
    size = max(minlength, int(high.item()) + 1)
    if weights is None:
        weights = torch.ones_like(self, dtype=torch.int64)
    elif weights.dtype not in (torch.float32, torch.float64):
        weights = weights.double()
    return weights.new_zeros(size).index_add_(0, self.long(), weights)


_bincount = Operator("bincount")


def repeat_interleave(repeats: Tensor, *, output_size: int | None = None) -> Tensor:
    """Return each index of ``repeats``, repeated as often as the element there says."""
    if output_size is None and repeats.dim() == 1 and repeats.dtype in (torch.int32, torch.int64):
        output_size = int(repeats.sum().item())
    return _repeat_interleave(repeats, output_size=output_size)


_repeat_interleave = Operator("repeat_interleave.Tensor")
_index = Operator("index.Tensor")


def index(self: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    """Return ``self[indices]``; masks are replaced by the coordinates of their true elements."""
    return _index(self, _coordinates(self, indices))


def _coordinates(self: Tensor, indices: Sequence[Tensor | None]) -> list[Tensor | None]:
    found: list[Tensor | None] = []
    for one in indices:
        if one is None or one.dtype not in _MASKS:
            found.append(one if one is None else one.to(self.device))
            continue
        axis = len(found)
        for offset, size in enumerate(one.shape):
            if axis + offset >= self.dim() or self.shape[axis + offset] != size:
                raise IndexError(
                    f"The shape of the mask {list(one.shape)} at index {offset} does not match the shape of"
                    f" the indexed tensor {list(self.shape)} at index {axis + offset}"
                )
        found += nonzero(one.to(self.device)).unbind(1)
    return found


def _with_indices_here(operator: Operator) -> Callable[..., Any]:
    """Return a kernel that moves index tensors from the CPU to the device first, as on CUDA."""

    def call(self: Tensor, indices: Sequence[Tensor | None], *args: Any, **kwargs: Any) -> Any:
        if self.device.type == DEVICE_TYPE:
            indices = [one if one is None else one.to(self.device) for one in indices]
        return operator(self, indices, *args, **kwargs)

    return call


_index_put_ = Operator("index_put_")


def _index_put_impl_(
    self: Tensor,
    indices: Sequence[Tensor | None],
    values: Tensor,
    accumulate: bool = False,
    unsafe: bool = False,
) -> Tensor:
    """Write ``values`` in place at ``indices``; derivatives of indexing call this operator."""
    return _index_put_(self, _coordinates(self, indices), values, accumulate)


def written(compute: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return the ``out=`` form of ``compute``."""
    every = all_written(lambda *args, **kwargs: (compute(*args, **kwargs),), "out")
    return lambda *args, **kwargs: every(*args, **kwargs)[0]


def all_written(compute: Callable[..., Sequence[Tensor]], *names: str) -> Callable[..., tuple[Tensor, ...]]:
    """Return the form of ``compute`` that writes its results into the arguments ``names``."""

    def call(*args: Any, **kwargs: Any) -> tuple[Tensor, ...]:
        targets = [kwargs.pop(name) for name in names]
        results = compute(*args, **kwargs)
        for name, target, result in zip(names, targets, results, strict=True):
            if target.dtype != result.dtype:
                raise RuntimeError(
                    f"Expected object of scalar type {result.dtype} but got {target.dtype} for {name}"
                )
            target.resize_(result.shape).copy_(result)
        return tuple(targets)

    return call


KERNELS: dict[str, Callable[..., Any]] = {
    "nonzero": nonzero,
    "nonzero.out": written(nonzero),
    "masked_select": masked_select,
    "masked_select.out": written(masked_select),
    "_unique": unique,
    "_unique2": unique2,
    "unique_consecutive": unique_consecutive,
    "unique_dim": unique_dim,
    "bincount": bincount,
    "repeat_interleave.Tensor": repeat_interleave,
    "index.Tensor": index,
    "_index_put_impl_": _index_put_impl_,
    **{
        name: _with_indices_here(Operator(name))
        for name in (
            "index_put",
            "index_put_",
            "_unsafe_index.Tensor",
            "_unsafe_index_put",
        )
    },
}
