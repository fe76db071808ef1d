"""Modules that show the tensors of a trace to the thread that traces, and their own to all others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from ..torch_internals.tensors import members, set_members

Tensor = torch.Tensor


class Overlay(dict[str, Any]):
    """The parameters or buffers of a module: ``now`` in the thread that made it, ``real`` in others."""

    def __init__(self, real: dict[str, Any], traced: Mapping[int, Tensor]) -> None:
        super().__init__(real)
        self.real = real
        self.now = {name: traced.get(id(value), value) for name, value in real.items()}
        self._thread = threading.get_ident()

    def shown(self) -> dict[str, Any]:
        """What the thread that asks may see and change."""
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
    """Shows ``traced`` tensors, by the identity of the real ones, in place of those of ``modules``.

    Returns the overlays by the identity of the dicts that they lie over. What code assigns to a module
    meanwhile is gone afterwards.
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
