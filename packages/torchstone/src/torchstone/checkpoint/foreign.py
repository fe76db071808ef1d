"""Reads and writes checkpoints of other kinds: ``torch.save``, safetensors, ``torch.distributed.checkpoint``.

Reading runs no code: files of ``torch.save`` are read with ``weights_only``; for DCP see :mod:`.dcp`.
"""

from __future__ import annotations

import zipfile
from collections import Counter, OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy
import safetensors.torch
import torch

from optest.files import NewFile

from ..errors import CheckpointDamaged, CheckpointError
from ..torch_internals import tensors as internals
from . import dcp
from .disk import sync_folder

Format = Literal["torch", "safetensors", "dcp"]
_SECTIONS: Mapping[str, str] = {
    "model": "model",
    "model_state_dict": "model",
    "state_dict": "model",
    "optimizer": "optimizer",
    "optimizer_state_dict": "optimizer",
    "optim": "optimizer",
    "scheduler": "scheduler",
    "scheduler_state_dict": "scheduler",
    "lr_scheduler": "scheduler",
    "scaler": "scaler",
    "loader": "loader",
    "rng": "rng",
    "metadata": "metadata",
}
"""Our names for the parts of a training state, by the names that other libraries and scripts give them."""


@dataclass(frozen=True)
class Foreign:
    """A checkpoint of another kind, all of it in memory."""

    kind: Format
    sections: Mapping[str, Any]
    step: int | None = None


def is_foreign(path: Path) -> bool:
    """Whether a file of ``torch.save`` or safetensors, or a folder of DCP, is at ``path``."""
    if path.is_dir():
        return dcp.is_dcp(path)
    return path.is_file() and (path.suffix == ".safetensors" or zipfile.is_zipfile(path))


def read(path: Path) -> Foreign:
    """Read the checkpoint at ``path``.

    Raises :class:`CheckpointDamaged` if it cannot be read, or not without running code.
    """
    kind: Format = "dcp" if path.is_dir() else "safetensors" if path.suffix == ".safetensors" else "torch"
    try:
        if kind == "safetensors":
            return Foreign(kind, {"model": safetensors.torch.load_file(path)})
        content = dcp.read(path) if kind == "dcp" else torch.load(path, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as error:  # each of these readers has exceptions of its own
        raise CheckpointDamaged(
            f"cannot read {path} as {_NAMES[kind]}: {str(error).strip().partition(chr(10))[0]}",
            hint="it is damaged, or holds objects that only pickle could make: save plain values",
        ) from error
    return _as_sections(kind, content)


_NAMES: Mapping[Format, str] = {
    "torch": "a file of torch.save",
    "safetensors": "a safetensors file",
    "dcp": "a checkpoint of torch.distributed.checkpoint",
}


def _as_sections(kind: Format, content: Any) -> Foreign:
    """Split a state into the sections with known names. If it has none, all of it is the model's."""
    if not isinstance(content, Mapping):
        return Foreign(kind, {"metadata": {"value": content}})
    known = {name for name in content if name in _SECTIONS and isinstance(content[name], Mapping | list)}
    if not known:
        return Foreign(kind, {"model": content})
    sections = {_SECTIONS[name]: content[name] for name in content if name in known}
    rest = {name: one for name, one in content.items() if name not in known and name != "step"}
    if "rng" in sections and not _is_random_state(sections["rng"]):
        rest["rng"] = sections.pop("rng")
    step = content.get("step")
    if isinstance(step, torch.Tensor) and step.numel() == 1 and not step.is_floating_point():
        step = step.item()
    if "step" in content and not isinstance(step, int):
        rest["step"] = step
    metadata = sections.get("metadata", {})
    sections["metadata"] = {**(metadata if isinstance(metadata, Mapping) else {"metadata": metadata}), **rest}
    return Foreign(kind, sections, step if isinstance(step, int) else None)


def _is_random_state(value: Any) -> bool:
    """Whether a section has the state of all generators, as :func:`.states.random_state` returns it."""
    return isinstance(value, Mapping) and {"torch", "numpy", "python"} <= value.keys()


def write(path: Path, to: Format, content: Mapping[str, Any]) -> None:
    """Write sections to ``path``, completely or not at all. An existing file is replaced, a folder is not.

    A safetensors file holds one section.
    """
    plain = _plain(dict(content))
    if to == "dcp":
        dcp.write(path, plain)
        return
    if to == "safetensors":
        ((section, state),) = plain.items()
        if not isinstance(state, dict) or not all(isinstance(one, torch.Tensor) for one in state.values()):
            raise CheckpointError(
                f"a safetensors file holds tensors only, and the {section} has other state too",
                hint='use to="torch"',
            )
        tensors = {name: one.contiguous().clone() for name, one in state.items()}
    with NewFile(path) as new:
        if to == "torch":
            torch.save(plain, new.file)
        else:
            new.file.write(safetensors.torch.save(tensors, {"format": "pt"}))
    sync_folder(path.parent)


def _plain(value: Any) -> Any:
    """Return ``value`` with the types that ``weights_only`` accepts in place of those that it refuses.

    Arrays become tensors, NumPy's scalars numbers, frozen sets sets (or tuples, where a set cannot be), and
    memory formats their names.
    """
    if isinstance(value, numpy.ndarray):
        return torch.from_numpy(value)
    if isinstance(value, numpy.generic):
        return value.item()
    if isinstance(value, torch.memory_format):
        return str(value).removeprefix("torch.")
    if type(value) is bytearray:
        return bytes(value)
    if isinstance(value, (set, frozenset)):
        return {_hashable(one) for one in value}
    if isinstance(value, dict):
        made: Any = type(value) if type(value) in _DICTS else dict
        made = made({_hashable(key): _plain(one) for key, one in value.items()})
        versions = internals.module_versions(value)
        return made if versions is None else internals.with_module_versions(made, versions)
    if type(value) in (list, tuple):
        return type(value)(map(_plain, value))
    return value


_DICTS = (dict, OrderedDict, Counter)
"""The classes of dicts that ``weights_only`` accepts."""


def _hashable(value: Any) -> Any:
    """Return :func:`_plain` of a key or of a member of a set."""
    if isinstance(value, frozenset):
        return tuple(_hashable(one) for one in sorted(value, key=repr))
    return tuple(map(_hashable, value)) if type(value) is tuple else _plain(value)
