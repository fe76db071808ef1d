"""``torch.load`` and ``torch.jit.load``: where CUDA's storages go, in every form of ``map_location``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.serialization import default_restore_location

from ..mirror import adapted
from ..rows import Row
from ..scope import Scope

Restore = Callable[[Any, str], Any]


def _restore(scope: Scope, map_location: Any) -> Any:
    """``map_location`` for files that may say ``cuda:N``: a device stays one, all else is a function."""
    if isinstance(map_location, str | torch.device):
        return scope.place(map_location)
    if isinstance(map_location, Mapping):
        return _by_mapping(scope, map_location)
    if callable(map_location):
        return _by_function(scope, map_location)
    return lambda storage, location: _put(scope, storage, location)


def _put(scope: Scope, storage: Any, location: str) -> Any:
    return default_restore_location(storage, str(scope.place(location)))


def _by_mapping(scope: Scope, mapping: Mapping[str, str]) -> Restore:
    """Keys may name the location in the file, or the CUDA device that the location stands for here."""
    redirected = {str(scope.place(key)): value for key, value in mapping.items()}

    def restore(storage: Any, location: str) -> Any:
        value = mapping.get(location, redirected.get(location, location))
        return _put(scope, storage, str(value))

    return restore


def _by_function(scope: Scope, function: Restore) -> Restore:
    """The user's function; None, its way to decline, leaves the storage to the redirected default."""

    def restore(storage: Any, location: str) -> Any:
        made = function(storage, location)
        return _put(scope, storage, location) if made is None else made

    return restore


def _map_load(scope: Scope, arguments: dict[str, Any]) -> None:
    arguments["map_location"] = _restore(scope, arguments["map_location"])


def _map_jit_load(scope: Scope, arguments: dict[str, Any]) -> None:
    """A TorchScript file knows no functions: its storages all go to one device, or stay where they say."""
    asked = arguments["map_location"]
    arguments["map_location"] = scope.device if asked is None else scope.place(asked)


ROWS = (
    Row(
        "torch.load",
        "wraps",
        "CUDA's storages go to the target",
        around=lambda original: adapted(original, _map_load),
    ),
    Row(
        "torch.jit.load",
        "wraps",
        "the device is mapped",
        around=lambda original: adapted(original, _map_jit_load),
    ),
)
