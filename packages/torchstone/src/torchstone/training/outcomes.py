"""The outputs of a step besides its state.

These are the result of ``loss_fn``, buffers of another form, and what the step writes into the batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule

from ..compiler.graphs import output_node, output_values
from ..errors import CaptureError, described
from ..torch_internals import pytree
from ..torch_internals.fake import FakeTensor
from ..torch_internals.operators import namespace
from .assigned import Place
from .batch import flatten, form_of, reaches
from .numbers import Number

aten = namespace("aten")
Tensor = torch.Tensor


@dataclass(frozen=True)
class Made:
    """A leaf that the program computes: a tensor, or a number of class ``kind``."""

    kind: type

    def of(self, tensor: Tensor) -> Any:
        return tensor if self.kind is Tensor else self.kind(tensor.item())


@dataclass(frozen=True)
class Returned:
    """The result of ``loss_fn`` as the leaves of a tree, some of them :class:`Made`."""

    leaves: Sequence[Any] = ()
    tree: Any = None

    def of(self, tensors: Iterable[Tensor]) -> Any:
        """Return the result of ``loss_fn``, with its outputs ``tensors`` in place of :class:`Made` leaves."""
        feed = iter(tensors)
        made = [leaf.of(next(feed)) if isinstance(leaf, Made) else leaf for leaf in self.leaves]
        return pytree.tree_unflatten(made, self.tree)


def returned(result: Any, *, opening: bool) -> tuple[Returned, list[Tensor]]:
    """Return the result of ``loss_fn`` in a trace, and copies of the tensors in it, which become outputs.

    With ``opening``, containers that PyTorch's trees do not know are opened too. Raises
    :class:`CaptureError` for an object of another class that has a tensor of the trace inside.
    """
    leaves, tree = flatten(result) if opening else pytree.tree_flatten(result)
    for leaf in leaves:
        if not isinstance(leaf, (Tensor, Number)) and form_of(leaf) is None:
            _refuse_hidden_tensors(leaf)
    tensors = [leaf.node.tensor if isinstance(leaf, Number) else leaf for leaf in leaves]
    found = [Made(_kind_of(leaf)) if isinstance(leaf, (Tensor, Number)) else leaf for leaf in leaves]
    return Returned(found, tree), [one.detach().clone() for one in tensors if isinstance(one, Tensor)]


def return_writes(module: GraphModule, first: int) -> list[int]:
    """Make a graph return what it writes into its arguments from ``first`` on, after its other outputs.

    Returns the places of these arguments, counted from ``first``, in the order of the outputs.
    """
    arguments = module.graph.find_nodes(op="placeholder")[first:]
    output, values, places = output_node(module), output_values(module), []
    for node in module.graph.find_nodes(op="call_function", target=aten.copy_.default):
        written, value = node.args[:2]
        if written in arguments:
            places.append(arguments.index(written))
            values.append(value)
            node.replace_all_uses_with(value)
            module.graph.erase_node(node)
    output.args = (tuple(values),)
    return places


def hand_out(
    results: Sequence[Tensor], assigned: Sequence[Place], batch: Sequence[Tensor], written: Sequence[int]
) -> None:
    """Give the last ``results`` to the ``assigned`` places of modules and the ``written`` batch tensors."""
    first = len(results) - len(written)
    feed = iter(results[first - sum(made for _, _, made in assigned) : first])
    for own, name, made in assigned:
        own[name] = next(feed) if made else None
    with torch.no_grad():
        for place, value in zip(written, results[first:], strict=True):
            batch[place].copy_(value)


def _kind_of(leaf: Tensor | Number) -> type:
    return Tensor if isinstance(leaf, Tensor) else leaf.__class__


def _refuse_hidden_tensors(leaf: Any) -> None:
    if reaches(leaf, (FakeTensor, Number)):
        raise CaptureError(
            f"loss_fn returns {described(leaf)}, which has tensors of the step in it",
            hint="return them as tensors, in tuples, lists, dicts, named tuples or dataclasses",
        )
