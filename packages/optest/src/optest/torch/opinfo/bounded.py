"""Bounded forms: how to compare results that have no fixed size or are Python values.

If the size of a result depends on values, the suite pads its values to a declared bound, and
compares the padded values and their count. Each form is a function of the entry's arguments,
written with PyTorch's own operators. Eager PyTorch runs the plain operator; its result is then
converted to the same form.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from .calls import FORWARD, FORWARD_MODE, SECOND_ORDER, Tensor, copied, evaluate
from .determined import DOUBLED, Form, determined
from .groups import Group
from .phases import Case
from .samples import Bound


def formed(group: Group, case: Case) -> Case:
    """Return ``case`` with the bounded or determined form of its entry as its call, if there is one."""
    if case.skipped or case.raises is not None or (group.phase in DOUBLED and group.entry in BOUNDED):
        return case
    plain = case.call.kind == FORWARD
    if group.entry in BOUNDED and BOUNDED[group.entry].concerns(case.bound):
        form = BOUNDED[group.entry]
        bound = replace(case.bound, target=form.compiled)
        if not plain:
            return _differentiated(replace(case, bound=bound, formed=True))
        call = replace(case.call, function=bound.function())
        expected = form.brought(case)
    elif (narrowed := determined(group, case)) is not None:
        bound, call = narrowed, replace(case.call, function=narrowed.function())
        expected = evaluate(call.run.map(copied))
    else:
        return case
    call = replace(call, results=len(expected))
    return replace(case, bound=bound, call=call, expected=expected, formed=True)


def _differentiated(case: Case) -> Case:
    """Return a case that differentiates the padded form.

    The padded elements get the weight 1, and the gradients must be the same as without them.
    """
    call = replace(case.call, function=case.bound.function())
    with torch.no_grad():
        shapes = [one.shape for one in call.function(*map(copied, call.tensors))]

    def padded(tensors: Sequence[Tensor], fill: float) -> list[Tensor]:
        return [_grown(one, shape, fill) for one, shape in zip(tensors, shapes, strict=True)]

    if call.kind == FORWARD_MODE:
        return replace(case, call=call, expected=padded(case.expected, 0))
    expected, count = case.expected, len(shapes)
    if call.kind == SECOND_ORDER:  # the last gradients are those of the weights
        expected = [*expected[:-count], *padded(expected[-count:], 0)]
    return replace(case, call=replace(call, weights=tuple(padded(call.weights, 1))), expected=expected)


def _grown(tensor: Tensor, shape: Sequence[int], fill: float) -> Tensor:
    """Return a tensor of ``shape`` that starts with ``tensor`` and has ``fill`` everywhere else."""
    grown = torch.full(shape, fill, dtype=tensor.dtype)
    grown[tuple(slice(size) for size in tensor.shape)] = tensor
    return grown


# Values padded to a bound, and a count ---------------------------------------------------


def _nonzero(self: Tensor, *, as_tuple: bool = False) -> list[Tensor]:
    count = (self != 0).sum()
    if as_tuple and not self.dim():
        self = self.reshape(1)
    found = torch.nonzero_static(self, size=self.numel(), fill_value=-1)
    return [*(found.unbind(1) if as_tuple else [found]), count]


def _masked_select(self: Tensor, mask: Tensor) -> list[Tensor]:
    self, mask = torch.broadcast_tensors(self, mask)
    return _selected(self.reshape(-1), mask.reshape(-1))


def _getitem(self: Tensor, index: Tensor) -> list[Tensor]:
    return _selected(self.flatten(0, index.dim() - 1), index.reshape(-1))


def _selected(rows: Tensor, mask: Tensor) -> list[Tensor]:
    """Return the rows that a 1-d ``mask`` selects, padded with zero rows, and their number."""
    places = torch.nonzero_static(mask, size=mask.numel(), fill_value=-1)[:, 0]
    picked = rows[places.clamp(min=0)] if mask.numel() else rows
    return [_kept(places >= 0, picked, 0), mask.sum()]


def _kept(there: Tensor, values: Tensor, dim: int) -> Tensor:
    """Return ``values`` with zeros wherever the 1-d mask ``there`` along ``dim`` is false."""
    shape = [-1 if axis == dim % values.dim() else 1 for axis in range(values.dim())]
    return torch.where(there.reshape(shape), values, torch.zeros_like(values))


def _tensor_split(input: Tensor, indices_or_sections: Tensor, dim: int = 0) -> list[Tensor]:
    """Return each part padded to the length of ``input``, then the real lengths; -1 for a missing part."""
    size, given = input.shape[dim], indices_or_sections
    if given.dim():
        inner = torch.where(given < 0, given + size, given).clamp(0, size)
        starts = torch.cat([torch.zeros(1, dtype=given.dtype), inner])
        lengths = (torch.cat([inner, torch.full((1,), size)]) - starts).clamp(min=0)
    else:
        number = torch.arange(_SECTIONS)
        lengths = size // given + (number < size % given).to(torch.int64)
        starts = lengths.cumsum(0) - lengths
        lengths = torch.where(number < given, lengths, -1)
    place = torch.arange(size)
    parts = []
    for start, length in zip(starts.unbind(), lengths.unbind(), strict=True):
        part = input.index_select(dim, (start + place).clamp(max=size - 1))
        parts.append(_kept(place < length, part, dim))
    return [*parts, lengths]


_SECTIONS = 8
"""The largest number of sections of ``tensor_split`` when that number is given as a tensor."""


def _allclose(
    input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> Tensor:
    return torch.isclose(input, other, rtol=rtol, atol=atol, equal_nan=equal_nan).all()


def _item(self: Tensor) -> Tensor:
    return self.reshape(())


def _equal(input: Tensor, other: Tensor) -> Tensor:
    if input.shape != other.shape:
        return torch.zeros((), dtype=torch.bool)
    return (input == other).all()


def _rows(self: Tensor, dim: int | None) -> Tensor:
    """Return one row for each thing that ``unique`` compares: each slice along ``dim``, or each element."""
    return self.reshape(-1, 1) if dim is None else self.movedim(dim, 0).unsqueeze(-1).flatten(1)


def _unique_consecutive(
    self: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> list[Tensor]:
    """Return the unique rows, then the inverse and the counts if requested, then the number of rows."""
    rows = _rows(self, dim)
    return _groups(rows, torch.arange(rows.shape[0]), return_inverse, return_counts, self, dim)


def _unique(
    self: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> list[Tensor]:
    """Return the same results as :func:`_unique_consecutive`, after sorting the rows lexicographically."""
    rows = _rows(self, dim)
    order = torch.arange(rows.shape[0])
    for column in reversed(range(rows.shape[1])):
        order = order[torch.sort(rows[order, column], stable=True)[1]]
    return _groups(rows, order, return_inverse, return_counts, self, dim)


def _groups(
    rows: Tensor, order: Tensor, inverse: bool, counts: bool, self: Tensor, dim: int | None
) -> list[Tensor]:
    """Group equal neighbors among ``rows[order]``.

    Return the value of each group, then the inverse and the counts if requested, then the number of groups.
    """
    size = rows.shape[0]
    ordered = rows[order]
    changes = (ordered[1:] != ordered[:-1]).any(1)
    begins = torch.cat([torch.ones(min(size, 1), dtype=torch.bool), changes])
    group = begins.to(torch.int64).cumsum(0) - 1
    values, number = _selected(ordered, begins)
    shape = (size,) if dim is None else self.movedim(dim, 0).shape
    found = [values.reshape(shape)]
    if inverse:
        places = torch.zeros(size, dtype=torch.int64).scatter(0, order, group)
        found.append(places.reshape(self.shape) if dim is None else places)
    if counts:
        found.append(torch.zeros(size, dtype=torch.int64).index_add(0, group, torch.ones_like(group)))
    return [*found, number]


def _bincount(self: Tensor, weights: Tensor | None = None, minlength: int = 0) -> list[Tensor]:
    size = max(_BINS, minlength)
    dtype = (
        torch.int64 if weights is None else weights.dtype if weights.is_floating_point() else torch.float64
    )
    ones = torch.ones_like(self, dtype=dtype) if weights is None else weights.to(dtype)
    counts = torch.zeros(size, dtype=dtype).index_add(0, self.to(torch.int64), ones)
    used = self.max() + 1 if self.numel() else torch.zeros((), dtype=self.dtype)
    return [counts, torch.clamp(used.to(torch.int64), min=minlength)]


_BINS = 256
"""The number of bins to which results of ``bincount`` are padded; all values in the samples are smaller."""


def _repeat_interleave(self: Tensor, repeats: Tensor, dim: int | None = None) -> list[Tensor]:
    values, dim = (self.reshape(-1), 0) if dim is None else (self, dim)
    ends = repeats.to(torch.int64).expand(values.shape[dim]).cumsum(0)
    number = torch.arange(_REPEATS)
    places = torch.searchsorted(ends, number, right=True).clamp(max=values.shape[dim] - 1)
    return [_kept(number < ends[-1], values.index_select(dim, places), dim), ends[-1]]


_REPEATS = 16
"""The size to which ``repeat_interleave`` pads the repeated dimension."""


def _one_hot(tensor: Tensor, num_classes: int = -1) -> list[Tensor]:
    return [(tensor.unsqueeze(-1) == torch.arange(_CLASSES)).to(torch.int64), tensor.max() + 1]


_CLASSES = 16
"""The number of classes to which ``one_hot`` pads; all values in the samples are smaller."""


def _padded(result: Tensor, bound: int, fill: float = 0) -> list[Tensor]:
    """Return ``result`` padded to ``bound`` rows with ``fill``, and the number of rows that it had."""
    rest = torch.full((bound - result.shape[0], *result.shape[1:]), fill, dtype=result.dtype)
    return [torch.cat([result, rest]), torch.tensor(result.shape[0])]


def _eager_nonzero(case: Case) -> list[Tensor]:
    bound = case.call.run.tensors[0].numel()
    padded = [_padded(one, bound, -1) for one in case.expected]
    return [*(values for values, _ in padded), padded[0][1]] if padded else []


def _eager_masked_select(case: Case) -> list[Tensor]:
    bound = torch.broadcast_shapes(*(one.shape for one in case.call.run.tensors)).numel()
    return _padded(case.expected[0], bound)


def _eager_getitem(case: Case) -> list[Tensor]:
    return _padded(case.expected[0], case.call.run.tensors[1].numel())


def _eager_tensor_split(case: Case) -> list[Tensor]:
    [self, given], parts = case.call.run.tensors, case.expected
    arguments = inspect.signature(_tensor_split).bind(*case.bound.args, **case.bound.kwargs).arguments
    dim, missing = arguments.get("dim", 0), 0 if given.dim() else _SECTIONS - len(parts)
    whole = [_grown(part, self.shape, 0) for part in parts]
    lengths = [part.shape[dim] for part in parts] + [-1] * missing
    return [*whole, *[torch.zeros_like(self)] * missing, torch.tensor(lengths)]


def _eager_repeat_interleave(case: Case) -> list[Tensor]:
    return _grown_along(case.expected[0], case.bound.kwargs.get("dim") or 0, _REPEATS)


def _eager_one_hot(case: Case) -> list[Tensor]:
    return _grown_along(case.expected[0], -1, _CLASSES)


def _grown_along(result: Tensor, dim: int, bound: int) -> list[Tensor]:
    """Return ``result`` padded with zeros to size ``bound`` along ``dim``, and its original size there."""
    shape = list(result.shape)
    shape[dim] = bound
    return [_grown(result, shape, 0), torch.tensor(result.shape[dim])]


def _eager_bincount(case: Case) -> list[Tensor]:
    [found] = case.expected
    return _padded(found, max(_BINS, *found.shape))


def _eager_unique(case: Case) -> list[Tensor]:
    """Return eager's results with the values and the counts padded, then the number of values.

    The inverse needs no padding, because its size is known.
    """
    arguments = inspect.signature(_unique).bind_partial(*case.bound.args, **case.bound.kwargs).arguments
    dim, [self, *_] = arguments.get("dim"), case.call.run.tensors
    bound = self.numel() if dim is None else self.shape[dim]
    values, *rest = case.expected
    padded, count = _padded(values if dim is None else values.movedim(dim, 0), bound)
    if rest and _with_counts(case):
        rest[-1] = _padded(rest[-1], bound)[0]
    return [padded, *rest, count]


def _with_counts(case: Case) -> bool:
    return bool(case.bound.kwargs.get("return_counts"))


def _eager_number(case: Case) -> list[Tensor]:
    return [case.expected[0].to(case.call.run.tensors[0].dtype)]


def _eager_truth(case: Case) -> list[Tensor]:
    """Return eager's Python bool, which ``expected`` already holds as a 0-d tensor."""
    return case.expected


@dataclass(frozen=True)
class _Bounded:
    """The bounded form of an entry.

    ``compiled`` is the function to compile, ``brought`` converts eager's answer to the same form, and
    ``concerns`` tells whether a sample needs the form.
    """

    compiled: Form
    brought: Callable[[Case], list[Tensor]]
    concerns: Callable[[Bound], bool] = lambda _: True


def _sized_by_a_tensor(bound: Bound) -> bool:
    """Whether the size of the result depends on a tensor.

    That is so if ``tensor_split`` gets its split points as a tensor, or ``x[…]`` is indexed by a mask.
    """
    index = bound.args[1]
    return isinstance(index, Tensor) and (bound.target is torch.tensor_split or index.dtype == torch.bool)


def _sized_by_repeats(bound: Bound) -> bool:
    return isinstance(bound.kwargs.get("repeats"), Tensor) and "output_size" not in bound.kwargs


def _sized_by_classes(bound: Bound) -> bool:
    return bound.kwargs.get("num_classes", -1) == -1


BOUNDED: dict[str, _Bounded] = {
    "nonzero": _Bounded(_nonzero, _eager_nonzero),
    "allclose": _Bounded(_allclose, _eager_truth),
    "argwhere": _Bounded(_nonzero, _eager_nonzero),
    "item": _Bounded(_item, _eager_number),
    "equal": _Bounded(_equal, _eager_truth),
    "unique": _Bounded(_unique, _eager_unique),
    "unique_consecutive": _Bounded(_unique_consecutive, _eager_unique),
    "masked_select": _Bounded(_masked_select, _eager_masked_select),
    "bincount": _Bounded(_bincount, _eager_bincount),
    "nn.functional.one_hot": _Bounded(_one_hot, _eager_one_hot, _sized_by_classes),
    "repeat_interleave": _Bounded(_repeat_interleave, _eager_repeat_interleave, _sized_by_repeats),
    "tensor_split": _Bounded(_tensor_split, _eager_tensor_split, _sized_by_a_tensor),
    "__getitem__": _Bounded(_getitem, _eager_getitem, _sized_by_a_tensor),
}
