"""Models of the zoo at several batch sizes: find the batch axes, and make one example for all sizes.

Eager PyTorch decides what a batch is: at most one axis of each tensor, all of the same length, such that the
model also runs with that length changed. Not here: running the program (:mod:`.examples`).
"""

from __future__ import annotations

import copy
import itertools
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch.export import Dim

from ..torch_internals import pytree
from .zoo import Example

Tensor = torch.Tensor

_MOST = 4096
"""The largest size that the program is exported for."""


@dataclass(frozen=True)
class Batch:
    """The batch axis of each tensor among the inputs, in pytree order; None if a tensor has no batch."""

    axes: tuple[int | None, ...]
    size: int

    @property
    def sizes(self) -> tuple[int, ...]:
        """At least four sizes: the example's own first, the others in ascending order; 1 is among them."""
        others = {1, 2, 4, self.size + 1, 2 * self.size + 1} - {self.size}
        return (self.size, *sorted(others))


class NoBatch(Exception):
    """The inputs have no axis whose length can change in eager PyTorch; the message has its error."""


def batch_of(example: Example) -> Batch:
    """Return the batch axes of the inputs of ``example``; raises :class:`NoBatch` if there are none."""
    refused = ""
    for batch in _candidates(_tensors(example.args), time_first=_is_time_first(example.model)):
        try:
            for size in batch.sizes[1:]:
                _in_eager(example, _at(example, batch, size))
        except Exception as error:  # noqa: BLE001 - models raise anything where a size does not fit
            refused = refused or f"{type(error).__name__}: {' '.join(str(error).split())}"
        else:
            return batch
    if refused:
        raise NoBatch(f"eager PyTorch takes no other batch size: {refused}")
    raise NoBatch("its inputs are not dense tensors with axes")


def at_every_size(example: Example) -> tuple[Example, tuple[int, ...]]:
    """Return ``example`` with a dynamic batch and inputs of several sizes; and these sizes, its own first.

    The new inputs repeat rows of the example's own, so that indices and lengths stay valid. An example that
    already has dynamic dimensions is returned unchanged; its batch is the first dimension of its first
    tensor. Raises :class:`NoBatch`.
    """
    if example.dynamic_shapes is not None:
        every = (example.args, *example.others)
        return example, tuple(_tensors(args)[0].shape[0] for args in every)
    batch = batch_of(example)
    dim = Dim("batch", min=1, max=_MOST)
    axes = iter(batch.axes)

    def dynamic(leaf: object) -> dict[int, Dim] | None:
        axis = next(axes) if isinstance(leaf, Tensor) else None
        return None if axis is None else {axis: dim}

    shapes = pytree.tree_map(dynamic, example.args)
    others = tuple(_at(example, batch, size) for size in batch.sizes[1:])
    return replace(example, dynamic_shapes=shapes, others=others), batch.sizes


def _tensors(args: tuple[object, ...]) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(args) if isinstance(leaf, Tensor)]


def _is_time_first(model: object) -> bool:
    """Whether a layer of the model has its batch in the second dimension (``batch_first=False``)."""
    parts = model.modules() if isinstance(model, torch.nn.Module) else ()
    return any(getattr(part, "batch_first", True) is False for part in parts)


def _candidates(tensors: Sequence[Tensor], *, time_first: bool) -> Iterator[Batch]:
    """Yield axes that may be the batch: first the same axis of as many tensors as possible, then others."""
    shapes = [tuple(one.shape) if one.layout == torch.strided else () for one in tensors]
    tried = set()
    for first, place in itertools.product((1, 0) if time_first else (0, 1), range(len(shapes))):
        if first >= len(shapes[place]):
            continue
        size = shapes[place][first]
        choices: list[list[int | None]] = [
            [*(axis for axis in (first, 1 - first) if axis < len(shape) and shape[axis] == size), None]
            for shape in shapes
        ]
        choices[place] = [first]
        order = (first, None, 1 - first)
        for axes in sorted(itertools.product(*choices), key=lambda one: sum(map(order.index, one))):
            if axes not in tried:
                tried.add(axes)
                yield Batch(axes, size)


def _at(example: Example, batch: Batch, size: int) -> tuple[object, ...]:
    """Return the arguments with ``size`` rows in the batch."""
    axes = iter(batch.axes)

    def resized(leaf: object) -> object:
        axis = next(axes) if isinstance(leaf, Tensor) else None
        if axis is None:
            return copy.deepcopy(leaf)
        assert isinstance(leaf, Tensor)
        return leaf.detach().index_select(axis, torch.arange(size) % batch.size)

    return tuple(pytree.tree_map(resized, example.args))


def _in_eager(example: Example, args: tuple[object, ...]) -> None:
    model = copy.deepcopy(example.reference or example.model)
    # Without these checks, a sparse tensor of the wrong sizes reads and writes outside of its memory.
    with torch.no_grad(), torch.sparse.check_sparse_tensor_invariants(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model(*args)
