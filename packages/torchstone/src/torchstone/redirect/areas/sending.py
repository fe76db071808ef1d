"""Keeping the place of tensors that are sent to other processes, through queues, pipes or arguments.

The memory is shared, on ``cpu`` as on CUDA, so its place is sent along.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .. import places
from ..rows import Row
from ..scope import Scope


def _around_pickler(original: Any) -> Any:
    """Make a pickler send each storage with its place, through its dispatch table."""

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
    """Rebuild a storage that another process sent, and set the place that it had there."""
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
