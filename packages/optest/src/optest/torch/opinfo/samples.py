"""One sample of a database as a function of tensors: arguments bound, outputs flat and dense.

Not here: what a phase asks of the function (``phases``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch

from ..internals import tree_flatten, tree_leaves, tree_unflatten
from .calls import Function, Tensor, dense

WIDER = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex32: torch.complex128,
    torch.complex64: torch.complex128,
}
"""The wider dtype in which results of a dtype are judged."""

_TENSOR = object()
"""A placeholder for a tensor among the leaves of the arguments."""
_NUMBERS = (bool, int, float, complex, torch.SymInt, torch.SymFloat, torch.SymBool)


@dataclass(frozen=True)
class Bound:
    """A callable with its arguments; ``then`` is applied to its result.

    The function that ``function()`` returns takes the tensors among the arguments, in order,
    and returns the tensors and numbers among the results.
    """

    target: Callable[..., Any]
    args: Sequence[Any]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    then: Callable[[Any], Any] | None = None

    @property
    def leaves(self) -> list[Any]:
        return tree_leaves((tuple(self.args), dict(self.kwargs)))

    @property
    def tensors(self) -> list[Tensor]:
        """The tensors among the arguments, as they were made."""
        return [leaf for leaf in self.leaves if isinstance(leaf, Tensor)]

    def on(self, tensors: Sequence[Tensor]) -> Bound:
        """Return the call with its tensors replaced by ``tensors``, in order."""
        leaves, spec = tree_flatten((tuple(self.args), dict(self.kwargs)))
        feed = iter(tensors)
        filled = [next(feed) if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        args, kwargs = tree_unflatten(filled, spec)
        return replace(self, args=args, kwargs=kwargs)

    def function(self, *, wide: bool = False) -> Function:
        """Return the call as a function of its tensors; ``wide`` widens the dtypes among its arguments."""
        leaves, spec = tree_flatten((tuple(self.args), dict(self.kwargs)))
        fixed = [_TENSOR if isinstance(leaf, Tensor) else _widened(leaf, wide) for leaf in leaves]
        target, then = self.target, self.then

        def function(*tensors: Tensor) -> list[Tensor]:
            feed = iter(tensors)
            filled = [next(feed) if leaf is _TENSOR else leaf for leaf in fixed]
            args, kwargs = tree_unflatten(filled, spec)
            found = target(*args, **kwargs)
            return tensors_of(found if then is None else then(found))

        return function


def tensors_of(result: Any) -> list[Tensor]:
    """Return the tensors in a result as dense tensors, and the numbers in it as 0-d tensors."""
    found = []
    for leaf in tree_leaves(result):
        if isinstance(leaf, Tensor):
            found.append(dense(leaf))
        elif isinstance(leaf, _NUMBERS):
            found.append(torch.scalar_tensor(cast(Any, leaf), dtype=_dtype_of(leaf)))
        elif callable(make_dense := getattr(leaf, "to_dense", None)):
            found.append(make_dense())  # a compiler's stand-in for a sparse tensor
    return found


def resized(tensors: Sequence[Tensor], dims: Iterable[tuple[int, int]], size: int) -> list[Tensor]:
    """Return the tensors with the dimensions ``dims`` cut or repeated to ``size``.

    Each of ``dims`` is the index of a tensor and one of its dimensions.
    """
    found = list(tensors)
    for place, dim in dims:
        old = found[place]
        found[place] = old.index_select(dim, torch.arange(size) % old.shape[dim])
    return found


def widened(tensor: Tensor) -> Tensor:
    """Return the tensor in the wider dtype of ``WIDER``, or unchanged if there is none."""
    wider = WIDER.get(tensor.dtype)
    return tensor if wider is None else tensor.to(wider)


def note_of(tensors: Sequence[Tensor]) -> str:
    """Return what is special about a sample: ``empty``, ``0-d``, ``size-1``, ``broadcast``, ``no tensor``."""
    if not tensors:
        return "no tensor"
    notes = []
    if any(one.numel() == 0 for one in tensors):
        notes.append("empty")
    if any(one.dim() == 0 for one in tensors):
        notes.append("0-d")
    if any(1 in one.shape for one in tensors):
        notes.append("size-1")
    shapes = {tuple(one.shape) for one in tensors if one.dim()}
    if len(shapes) > 1 and _broadcast(shapes):
        notes.append("broadcast")
    return ", ".join(notes)


def _broadcast(shapes: set[tuple[int, ...]]) -> bool:
    try:
        torch.broadcast_shapes(*shapes)
    except RuntimeError:
        return False
    return True


def _widened(leaf: Any, wide: bool) -> Any:
    return WIDER.get(leaf, leaf) if wide and isinstance(leaf, torch.dtype) else leaf


def _dtype_of(number: Any) -> torch.dtype:
    if isinstance(number, bool | torch.SymBool):
        return torch.bool
    if isinstance(number, int | torch.SymInt):
        return torch.int64
    return torch.complex128 if isinstance(number, complex) else torch.float64
