"""Tensors that are sent to other processes keep their place: through queues and pipes, and as arguments.

The memory is shared, on ``cpu`` as on CUDA, so a place goes with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .. import places
from ..rows import Row
from ..scope import Scope


def _around_pickler(original: Any) -> Any:
    """A pickler whose own table says how storages are sent."""

    def implementation(scope: Scope, self: Any, *args: Any) -> None:
        original(self, *args)
        if scope.tracks:
            send = self.dispatch_table[torch.UntypedStorage]
            self.dispatch_table = {**self.dispatch_table, torch.UntypedStorage: _with_place(send)}

    return implementation


def _with_place(send: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def with_place(storage: torch.UntypedStorage) -> Any:
        place = places.place_of_storage(storage)
        sent = send(storage)
        return sent if place is None else (receive, (place, *sent))

    return with_place


def receive(place: int, rebuild: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """The storage that another process sent, at its place there."""
    storage = rebuild(*arguments)
    places.put_storage(storage, place)
    return storage


ROWS = (
    Row(
        "multiprocessing.reduction.ForkingPickler.__init__",
        "wraps",
        "a tensor that is sent to another process says on which CUDA device it is",
        around=_around_pickler,
    ),
)
