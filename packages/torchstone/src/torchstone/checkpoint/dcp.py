"""Checkpoints of ``torch.distributed.checkpoint``, read and written by one process.

DCP keeps its metadata in a pickle. This reader accepts a pickle only if it names nothing but DCP's own
records, and it reads values with ``weights_only``, so reading a checkpoint runs no code. A checkpoint is
written to a temporary folder beside its path, which is then renamed.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import pickle
import secrets
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import torch
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta, TensorStorageMetadata
from torch.distributed.checkpoint.planner import ReadItem

from ..errors import CheckpointError
from . import disk

_METADATA = ".metadata"
_PLAIN = {
    ("builtins", "set"),
    ("collections", "OrderedDict"),
    ("pathlib", "PosixPath"),
    ("pathlib._local", "PosixPath"),
    ("torch.serialization", "_get_layout"),
}
"""Other names that occur in DCP's metadata; building one of these objects has no side effects."""


def is_dcp(path: Path) -> bool:
    """Whether a checkpoint of DCP is in the folder ``path``."""
    return (path / _METADATA).is_file()


def read(path: Path) -> dict[str, Any]:
    """Read the nested state dict in a folder of DCP, which any number of processes may have written.

    Raises ``ValueError``, or an exception of DCP's own, if it cannot be read.
    """
    reader = _Reader(path)
    metadata = reader.read_metadata()
    flat: dict[str, Any] = {name: _empty(one) for name, one in metadata.state_dict_metadata.items()}
    try:
        with _alone():
            dcp.load(flat, storage_reader=reader, planner=_Planner(False, False), no_dist=True)
    except CheckpointException as error:  # its class does not inherit from Exception
        reasons = [str(reason) for reason, _ in error.failures.values()]
        raise ValueError("; ".join(reasons)) from error
    places: Mapping[str, Any] = metadata.planner_data or {}
    nested: dict[Any, Any] = {}
    for name, value in flat.items():
        _put(nested, places.get(name, (name,)), value)
    made: dict[str, Any] = _unpacked(nested)
    optimizer = made.get("optimizer")
    if isinstance(optimizer, dict) and "param_groups" in optimizer:
        state = optimizer.pop("state", {})
        state = {int(key) if str(key).isdigit() else key: one for key, one in state.items()}
        made["optimizer"] = {"state": state, **optimizer}
    return made


def _empty(one: Any) -> torch.Tensor | None:
    """Return an empty tensor to read a tensor into, or None for a value of another kind."""
    return (
        torch.empty(one.size, dtype=one.properties.dtype) if isinstance(one, TensorStorageMetadata) else None
    )


def write(path: Path, content: Mapping[str, Any]) -> None:
    """Write a nested state dict to the new folder ``path``, completely or not at all."""
    if path.exists():
        raise CheckpointError(f"{path} exists already", hint="choose a path that does not")
    disk.make_folder(path.absolute().parent)
    temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        with _alone():
            writer = dcp.FileSystemWriter(temporary, sync_files=True)
            packed = {
                name: (_packed_optimizer if name == "optimizer" else _packed)(one)
                for name, one in content.items()
            }
            dcp.save(packed, storage_writer=writer, no_dist=True)
        disk.sync_folder(temporary)
        os.rename(temporary, path)
    except BaseException:
        disk.remove(temporary)
        raise
    disk.sync_folder(path.absolute().parent)


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Suppress DCP's warning that there is only one process, which is intended here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled", UserWarning)
        yield


class _Records(pickle.Unpickler):
    """An unpickler that builds DCP's records and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        known = module == "torch" or module.startswith("torch.distributed.checkpoint.")
        found = super().find_class(module, name) if known or (module, name) in _PLAIN else None
        record = isinstance(found, type) and (
            is_dataclass(found) or issubclass(found, Enum | torch.Size | dict | set)
        )
        if record or (module, name) in _PLAIN or isinstance(found, torch.dtype | torch.layout):
            return found
        raise pickle.UnpicklingError(f"its metadata names {module}.{name}")


class _Reader(dcp.FileSystemReader):
    """A reader that does not run what the metadata names."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        with open(Path(self.path) / _METADATA, "rb") as file:
            found = _Records(file).load()
        if not isinstance(found, Metadata):
            raise pickle.UnpicklingError("its metadata is something else")
        found.storage_meta = found.storage_meta or StorageMeta()
        found.storage_meta.load_id = self.load_id
        return found


class _Planner(dcp.DefaultLoadPlanner):
    """A planner that does not run what the values name."""

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        self.state_dict[read_item.dest_index.fqn] = torch.load(value, weights_only=True)


class _List(dict[int, Any]):
    """A list, by index, whose entries are not all known yet."""


def _put(nested: dict[Any, Any], place: tuple[Any, ...], value: Any) -> None:
    for key, following in itertools.pairwise(place):
        nested = nested.setdefault(key, _List() if isinstance(following, int) else {})
    nested[place[-1]] = value


_PAIRS = "pairs of a dict"


def _packed(value: Any) -> Any:
    """Return ``value`` with tuples in place of the dicts that DCP would change.

    DCP turns the keys of dicts into strings, and drops empty dicts.
    """
    if isinstance(value, dict):
        made = {key: _packed(one) for key, one in value.items()}
        if made and not isinstance(value, Counter) and all(type(key) is str for key in made):
            return made
        return (_PAIRS, "Counter" if isinstance(value, Counter) else "dict", tuple(made.items()))
    return [_packed(one) for one in value] if isinstance(value, list) else value


def _packed_optimizer(value: Any) -> Any:
    """Pack an optimizer, but let the numbers of parameters become strings, which other readers expect."""
    if not isinstance(value, dict) or not isinstance(value.get("state"), dict):
        return _packed(value)
    state = {key: _packed(one) for key, one in value["state"].items()}
    return {**_packed({**value, "state": 0}), "state": state}


def _unpacked(value: Any) -> Any:
    """Undo :func:`_packed` and turn each :class:`_List` of :func:`_put` into a list."""
    if isinstance(value, _List):
        return [_unpacked(value[key]) for key in sorted(value)]
    if isinstance(value, dict):
        return {key: _unpacked(one) for key, one in value.items()}
    if isinstance(value, tuple) and value[:1] == (_PAIRS,):
        made = {key: _unpacked(one) for key, one in value[2]}
        return Counter(made) if value[1] == "Counter" else made
    return [_unpacked(one) for one in value] if isinstance(value, list) else value
