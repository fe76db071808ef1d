"""What comes out of a step beside its state: what ``loss_fn`` returned."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..errors import CaptureError, described
from ..torch_internals import pytree
from ..torch_internals.fake import FakeTensor
from .batch import flatten, form_of, reaches
from .numbers import Number

Tensor = torch.Tensor


@dataclass(frozen=True)
class Made:
    """A leaf that the program makes: a tensor, or a number of class ``kind``."""

    kind: type

    def of(self, tensor: Tensor) -> Any:
        return tensor if self.kind is Tensor else self.kind(tensor.item())


@dataclass(frozen=True)
class Returned:
    """What ``loss_fn`` returned: leaves, some of them :class:`Made`, of a tree."""

    leaves: Sequence[Any] = ()
    tree: Any = None

    def of(self, tensors: Iterable[Tensor]) -> Any:
        """It with ``tensors``, the outputs that belong to it."""
        feed = iter(tensors)
        made = [leaf.of(next(feed)) if isinstance(leaf, Made) else leaf for leaf in self.leaves]
        return pytree.tree_unflatten(made, self.tree)


def returned(result: Any, *, opening: bool) -> tuple[Returned, list[Tensor]]:
    """What ``loss_fn`` returned in a trace, and copies of the tensors in it, which are outputs.

    With ``opening``, containers that PyTorch's trees do not know are opened too. Raises
    :class:`CaptureError` for an object that keeps a tensor of the trace to itself.
    """
    leaves, tree = flatten(result) if opening else pytree.tree_flatten(result)
    for leaf in leaves:
        if not isinstance(leaf, (Tensor, Number)) and form_of(leaf) is None:
            _refuse_hidden_tensors(leaf)
    tensors = [leaf.node.tensor if isinstance(leaf, Number) else leaf for leaf in leaves]
    found = [Made(_kind_of(leaf)) if isinstance(leaf, (Tensor, Number)) else leaf for leaf in leaves]
    return Returned(found, tree), [one.detach().clone() for one in tensors if isinstance(one, Tensor)]


def _kind_of(leaf: Tensor | Number) -> type:
    return Tensor if isinstance(leaf, Tensor) else leaf.__class__


def _refuse_hidden_tensors(leaf: Any) -> None:
    if reaches(leaf, (FakeTensor, Number)):
        raise CaptureError(
            f"loss_fn returns {described(leaf)}, which has tensors of the step in it",
            hint="return them as tensors, in tuples, lists, dicts, named tuples or dataclasses",
        )
