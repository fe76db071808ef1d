"""Makes modules show the tensors of a trace while a step is traced, and restores them afterwards."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from ..compiler.rules.registry import stand_in_of
from ..errors import CaptureError
from ..torch_internals import pytree
from ..torch_internals.fake import FakeTensor
from ..torch_internals.tensors import members, set_members, set_submodules, submodules
from ..torch_internals.training import computed_by_hooks
from .recipe import Recipe
from .tracing import Numbers

Tensor = torch.Tensor


class Overlay(dict[str, Any]):
    """A dict that covers one of a module's, such as that of its parameters.

    The thread that made the overlay sees and changes ``now``; other threads see ``real``. ``traced`` maps
    the identity of each real value to the value that is shown in its place.
    """

    def __init__(self, real: dict[str, Any], traced: Mapping[int, Any]) -> None:
        super().__init__(real)
        self.real = real
        self.now = {name: traced.get(id(value), value) for name, value in real.items()}
        self._thread = threading.get_ident()

    def shown(self) -> dict[str, Any]:
        """Return the dict that the calling thread may see and change."""
        return self.now if threading.get_ident() == self._thread else self.real


def _asks_what_is_shown(name: str) -> Callable[..., Any]:
    def method(self: Overlay, *args: Any) -> Any:
        return getattr(self.shown(), name)(*args)

    return method


for _name in (
    *("__contains__", "__delitem__", "__eq__", "__getitem__", "__iter__", "__len__", "__setitem__"),
    *("copy", "get", "items", "keys", "pop", "setdefault", "update", "values"),
):
    setattr(Overlay, _name, _asks_what_is_shown(_name))


@contextmanager
def overlaid(
    modules: Iterable[torch.nn.Module], traced: Mapping[int, Tensor]
) -> Iterator[dict[int, Overlay]]:
    """Show ``traced`` tensors, by the identity of the real ones, in place of those of ``modules``.

    Yields the overlays by the identity of the dicts that they cover. What code assigns to a module inside
    the block is discarded afterwards.
    """
    before = [(module, members(module)) for module in modules]
    found: dict[int, Overlay] = {}
    try:
        for module, own in before:
            parts = [Overlay(real, traced) for real in own]
            found.update((id(part.real), part) for part in parts)
            set_members(module, *parts)
        yield found
    finally:
        for module, own in before:
            set_members(module, *own)


@contextmanager
def showing_stand_ins(model: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """Show the stand-ins of capture rules in place of parts of ``model``; yield the one for all of it."""
    stand_ins = {id(module): stand_in_of(module) for module in model.modules()}
    before = [(module, submodules(module)) for module in model.modules()]
    try:
        for module, own in before:
            if any(stand_ins.get(id(part)) is not part for part in own.values() if part is not None):
                set_submodules(module, Overlay(own, stand_ins))
        yield stand_ins[id(model)]
    finally:
        for module, own in before:
            set_submodules(module, own)


def roots_of(recipe: Recipe) -> list[torch.nn.Module]:
    """The modules whose tensors a step may read and write."""
    return [*recipe.modules(), *([recipe.average] if recipe.average is not None else [])]


@contextmanager
def as_it_was(recipe: Recipe, trace: Numbers | None = None) -> Iterator[None]:
    """Restore parameters and buffers that traced code replaced.

    Raises :class:`CaptureError` if a tensor of the trace is left in another attribute of a module. ``trace``
    knows which real tensors have other values in each step.
    """
    modules = [module for root in roots_of(recipe) for module in root.modules()]
    before = [(own, dict(own)) for module in modules for own in members(module)]
    computed = [
        (vars(module), name, vars(module)[name])
        for module in modules
        for name in computed_by_hooks(module)
        if name in vars(module)
    ]
    try:
        yield
    finally:
        torch.clear_autocast_cache()
        for own, entries in before:
            own.clear()
            own.update(entries)
        for own, name, value in computed:
            own[name] = value
    for module in modules:
        for name, value in vars(module).items():
            tensors = [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, Tensor)]
            if any(isinstance(one, FakeTensor) or (trace and trace.varies(one)) for one in tensors):
                delattr(module, name)
                raise CaptureError(
                    f"{type(module).__name__} keeps a tensor of the step in its attribute {name!r}",
                    hint="return it from loss_fn beside the loss, or make it a buffer: register_buffer",
                )
