"""``torch.load``: where CUDA storages are loaded to, for every form of ``map_location``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.serialization import default_restore_location

from ...torch_internals import redirection
from .. import places
from ..mirror import adapting
from ..rows import Row
from ..scope import Scope

Restore = Callable[[Any, str], Any]


def _restore(scope: Scope, map_location: Any) -> Any:
    """Return a ``map_location``, a device or a function, that works for files that name ``cuda:N``."""
    if isinstance(map_location, str | torch.device):
        if not scope.tracks or places.parsed(map_location).type == "meta":
            return scope.place(map_location)
        return lambda storage, location: _put(scope, storage, str(map_location))
    if isinstance(map_location, Mapping):
        return _by_mapping(scope, map_location)
    if callable(map_location):
        return _by_function(scope, map_location)
    return lambda storage, location: _put(scope, storage, location)


def _put(scope: Scope, storage: Any, location: str) -> Any:
    place = scope.place(location)
    if not scope.tracks:
        return default_restore_location(storage, str(place))
    found = places.place_of_device(places.parsed(place))
    made = default_restore_location(storage, "cpu" if found is not None else str(place))
    if found is not None:
        places.put_storage(made, found)
    return made


def _by_mapping(scope: Scope, mapping: Mapping[str, str]) -> Restore:
    """Return a function for a mapping; keys may be locations in the file, or equivalent CUDA devices."""
    redirected = {str(scope.place(key)): value for key, value in mapping.items()}

    def restore(storage: Any, location: str) -> Any:
        value = mapping.get(location, redirected.get(location, location))
        return _put(scope, storage, str(value))

    return restore


def _by_function(scope: Scope, function: Restore) -> Restore:
    """Return a function that calls the user's; None from it leaves the storage to the default."""

    def restore(storage: Any, location: str) -> Any:
        made = function(storage, location)
        if made is None:
            return _put(scope, storage, location)
        if scope.tracks and isinstance(made, torch.UntypedStorage):
            places.put_storage(made, places.HOST)  # unless the function moved it
        return made

    return restore


def _map_load(scope: Scope, arguments: dict[str, Any]) -> None:
    arguments["map_location"] = _restore(scope, arguments["map_location"])


def _location(original: Any) -> Any:
    """Write the CUDA device of a storage to the file, as PyTorch does on CUDA."""

    def implementation(scope: Scope, storage: Any) -> str:
        untyped = redirection.untyped(storage)
        index = scope.index_of_storage(untyped) if scope.tracks else None
        return str(original(storage)) if index is None else f"cuda:{index}"

    return implementation


ROWS = (
    Row(
        "torch.serialization.location_tag",
        "wraps",
        "files name the CUDA device, as CUDA's do",
        around=_location,
    ),
    Row(
        "torch.load",
        "wraps",
        "CUDA's storages go to the target",
        around=adapting(_map_load),
    ),
)
