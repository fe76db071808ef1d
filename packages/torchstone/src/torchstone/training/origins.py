"""From which tensors outside of a trace the values of its real tensors come.

A program reads tensors that code refers to in each step, so writes to them need no other program. Only where
a trace itself looks at values, such as in ``mask.nonzero()`` or ``int(count)``, the program stands for these
values. It is valid as long as the tensors that they come from have not been written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from ..torch_internals.fake import FakeTensor
from ..torch_internals.tensors import storage_identity, version_of

Tensor = torch.Tensor
Places = frozenset[int | None]
"""Identities of storages; None stands for any of them."""
_NONE: Places = frozenset()
_ANY: Places = frozenset({None})


class Origins:
    """Notes which of the tensors ``outer`` a trace looks at, directly or through others made from them."""

    def __init__(self, outer: Iterable[Tensor] = ()) -> None:
        self._outer: dict[int | None, list[tuple[Tensor, int]]] = {}
        for tensor in outer:
            place = storage_identity(tensor.untyped_storage()) if tensor.layout is torch.strided else None
            self._outer.setdefault(place, []).append((tensor, version_of(tensor)))
        self._known: dict[int, tuple[Any, Places]] = {}
        """Where values come from, by the identity of the storage, which is kept alive."""
        self._looked: Places = _NONE

    def made(self, results: Iterable[Tensor], sources: Sequence[Tensor]) -> None:
        """Note that the values of ``results`` come from ``sources``, and from nothing else if there are none.

        Results that share memory with a source keep what was noted before.
        """
        found = _NONE.union(*map(self._of, sources))
        for one in results:
            if one.layout is torch.strided:
                storage = one.untyped_storage()
                self._known[storage_identity(storage)] = storage, found

    def look(self, values: Iterable[Any]) -> None:
        """Note that the trace depends on the values of the tensors among ``values``."""
        for one in values:
            if isinstance(one, Tensor):
                self._looked |= self._of(one)

    def look_if_unknown(self, tensor: Tensor) -> None:
        """Note that the trace depends on ``tensor`` if it may be a copy that no operator made."""
        if None in self._of(tensor):
            self.look([tensor])

    def made_here(self, tensor: Tensor) -> bool:
        """Whether ``tensor`` is a real one that the trace made."""
        if tensor.layout is not torch.strided or isinstance(tensor, FakeTensor):
            return False
        place = storage_identity(tensor.untyped_storage())
        return place in self._known and place not in self._outer

    def seen(self) -> list[tuple[Tensor, int]]:
        """Return the tensors whose values the trace depends on, with their versions before the trace."""
        found = self._outer if None in self._looked else self._looked & self._outer.keys()
        return [one for place in found for one in self._outer[place]]

    def _of(self, tensor: Tensor) -> Places:
        if tensor.layout is not torch.strided:
            return _ANY
        place = storage_identity(tensor.untyped_storage())
        if place in self._known:
            return self._known[place][1]
        if isinstance(tensor, FakeTensor):
            return _NONE
        return frozenset({place}) if place in self._outer else _ANY
