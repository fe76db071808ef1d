"""Shows what a checkpoint holds, and finds all damage in it, without loading it into anything."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from ..errors import CheckpointDamaged
from .loading import Checkpoint, open_checkpoint
from .manifest import Manifest
from .tree import decode, tensors_in


@dataclass(frozen=True)
class Section:
    """One part of a checkpoint, with the number of different tensors in it and their size in bytes."""

    name: str
    tensors: int
    bytes: int


@dataclass(frozen=True)
class Contents:
    """What ``torchstone checkpoint show`` prints; ``format`` and ``created`` are empty for other kinds."""

    path: str
    kind: str
    step: int | None
    format: str
    created: str
    sections: tuple[Section, ...]
    files: dict[str, int]
    metadata: dict[str, str]

    def to_dict(self) -> dict[str, Any]:
        """Return the contents as values for JSON."""
        return asdict(self)


def describe(path: Path) -> Contents:
    """Return the contents of the checkpoint at ``path``; only its manifest and headers are read."""
    with open_checkpoint(path) as opened:
        source = opened.source
        own = isinstance(source, Manifest)
        return Contents(
            path=str(opened.path),
            kind="torchstone" if isinstance(source, Manifest) else source.kind,
            step=opened.step,
            format=".".join(map(str, source.version)) if isinstance(source, Manifest) else "",
            created=source.created if isinstance(source, Manifest) else "",
            sections=tuple(_sections(opened)),
            files={one.name: one.size for one in source.files} if isinstance(source, Manifest) else {},
            metadata=_metadata(opened) if own else {},
        )


def problems(path: Path) -> list[str]:
    """Compare every checksum of the checkpoint at ``path``; return a line for each damaged section."""
    found = []
    with open_checkpoint(path) as opened:
        for name in opened:
            try:
                opened.take(name, mapped=True)
            except CheckpointDamaged as error:
                found.append(f"{name}: {error.message}")
    return found


def _sections(opened: Checkpoint) -> Iterator[Section]:
    source = opened.source
    for name, node in source.sections.items():
        if isinstance(source, Manifest):
            stored = [source.tensors[i] for i in sorted(set(tensors_in(node)))]
            yield Section(name, len(stored), sum(_bytes(one.dtype, one.shape) for one in stored))
        else:
            tensors = list(_tensors(node))
            yield Section(name, len(tensors), sum(one.numel() * one.element_size() for one in tensors))


def _bytes(dtype: str, shape: tuple[int, ...]) -> int:
    known = getattr(torch, dtype, None)
    return math.prod(shape) * known.itemsize if isinstance(known, torch.dtype) else 0


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _tensors(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _tensors(one)


_MOST = 60


def _metadata(opened: Checkpoint) -> dict[str, str]:
    """Return the metadata in short form. Tensors are not read, only described by dtype and shape."""
    node = opened.source.sections.get("metadata", {"dict": {}})
    assert isinstance(opened.source, Manifest)
    stored = opened.source.tensors

    def text(one: Any) -> str:
        if any(True for _ in tensors_in(one)):
            return ", ".join(f"{stored[i].dtype}{list(stored[i].shape)}" for i in tensors_in(one))
        written = repr(decode(one, torch.empty))
        return written if len(written) <= _MOST else f"{written[:_MOST]} …"

    return {key: text(one) for key, one in node["dict"].items()}
