"""The manifest, which describes the content of a checkpoint. Renaming it into place completes a save.

``checkpoint.jsonl`` has two lines. The form of the first never changes: ``{"format": "torchstone-checkpoint",
"version": [major, minor], "sha256": …}``, where the hash is that of the second line. The second line
describes sections, tensors and files. The rules for versions are in ``docs/checkpoints.md``.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from optest.files import read_whole

from ..errors import CheckpointDamaged, CheckpointError, CheckpointVersionError
from .shards import Damage, StoredFile, StoredTensor

FORMAT = "torchstone-checkpoint"
VERSION = (1, 0)
MANIFEST = "checkpoint.jsonl"
_DATA = re.compile(r"data-[0-9a-f]{16}")
_LEFT_BY_A_SAVE = re.compile(r"data-[0-9a-f]{16}|\.[0-9a-f]{16}\.tmp")
"""What a save makes beside the manifest: folders of data, and a temporary file for the next manifest."""
DAMAGED = "load another checkpoint; `torchstone checkpoint verify PATH` says all that is wrong with this one"


@dataclass(frozen=True)
class Manifest:
    """The content of the second line. ``sections`` are values in the form of :mod:`.tree`."""

    data: str
    sections: Mapping[str, Any]
    files: tuple[StoredFile, ...]
    tensors: tuple[StoredTensor, ...]
    step: int | None = None
    sequence: int = 0
    metric: float | None = None
    created: str = ""
    producer: Mapping[str, str] = field(default_factory=dict)
    version: tuple[int, int] = VERSION

    @property
    def size(self) -> int:
        """The size of all files of tensors, in bytes."""
        return sum(one.size for one in self.files)


def new_folder_name() -> str:
    """Return a name for a folder of data that no other save uses."""
    return f"data-{secrets.token_hex(8)}"


def leftovers(path: Path, keep: str | None) -> Iterator[Path]:
    """Yield what interrupted or replaced saves have left in a checkpoint, except the entry named ``keep``."""
    for one in path.iterdir():
        if _LEFT_BY_A_SAVE.fullmatch(one.name) and one.name != keep:
            yield one


def is_checkpoint(path: Path) -> bool:
    """Whether a complete checkpoint is at ``path``."""
    return (path / MANIFEST).is_file()


def may_name(path: Path, data: str) -> bool:
    """Whether the manifest at ``path`` may refer to the folder ``data``; True if it cannot be read."""
    try:
        return read(path).data == data
    except FileNotFoundError:
        return False
    except (OSError, CheckpointError):
        return True


def dumps(manifest: Manifest) -> bytes:
    """Return the manifest as the bytes of its file."""
    described = asdict(manifest)
    del described["version"]
    body = json.dumps(described, separators=(",", ":")).encode()
    head = {"format": FORMAT, "version": manifest.version, "sha256": hashlib.sha256(body).hexdigest()}
    return json.dumps(head).encode() + b"\n" + body + b"\n"


def read(path: Path) -> Manifest:
    """Read the manifest of the checkpoint at ``path``.

    Raises ``FileNotFoundError`` if there is none, :class:`CheckpointVersionError` for a newer format, and
    :class:`CheckpointDamaged` if the file is not what :func:`dumps` returned.
    """
    content = read_whole(path / MANIFEST)
    with damage_of(path):
        return _parse(content, path)


@contextlib.contextmanager
def damage_of(path: Path) -> Iterator[None]:
    """Turn errors about a file's content into a :class:`CheckpointDamaged` error about the checkpoint."""
    try:
        yield
    except (Damage, ValueError, TypeError, LookupError, RecursionError) as error:
        text = str(error) if isinstance(error, Damage) else f"{MANIFEST} is damaged"
        raise CheckpointDamaged(f"the checkpoint {path} is damaged: {text}", hint=DAMAGED) from error


def _parse(content: bytes, path: Path) -> Manifest:
    first, _, second = content.partition(b"\n")
    head = json.loads(first)
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise Damage(f"{MANIFEST} does not begin as a checkpoint's does")
    major, minor = head["version"]
    if not (type(major) is int and type(minor) is int and major >= 1 and minor >= 0):
        raise Damage(f"{MANIFEST} names no version")
    if major > VERSION[0]:
        raise CheckpointVersionError(
            f"the checkpoint {path} has format {major}.{minor}; this Torchstone reads up to {VERSION[0]}.x",
            hint="update Torchstone, or save the checkpoint again with the older one",
        )
    body = second[:-1]
    if second[-1:] != b"\n" or hashlib.sha256(body).hexdigest() != head["sha256"]:
        raise Damage(f"{MANIFEST} is damaged")
    said = json.loads(body)
    if not _DATA.fullmatch(said["data"]):
        raise Damage(f"{MANIFEST} names a folder outside of the checkpoint")
    files = tuple(_file(one) for one in said["files"])
    return Manifest(
        data=said["data"],
        sections=said["sections"],
        files=files,
        tensors=tuple(_tensor(one, len(files)) for one in said["tensors"]),
        step=said["step"],
        sequence=said["sequence"],
        metric=said["metric"],
        created=said["created"],
        producer=said["producer"],
        version=(major, minor),
    )


# Fields that a later minor version has added are ignored.
def _file(said: Mapping[str, Any]) -> StoredFile:
    name = said["name"]
    if Path(name).name != name:
        raise Damage(f"{MANIFEST} names a file outside of the checkpoint")
    return StoredFile(name, int(said["size"]), int(said["header_crc32"]))


def _tensor(said: Mapping[str, Any], files: int) -> StoredTensor:
    if not 0 <= said["file"] < files:
        raise Damage(f"{MANIFEST} names a file that it does not list")
    return StoredTensor(
        int(said["file"]),
        said["key"],
        said["dtype"],
        tuple(said["shape"]),
        tuple(said["crc32"]),
        _integers(said.get("strides")),
    )


def _integers(said: Sequence[int] | None) -> tuple[int, ...] | None:
    return None if said is None else tuple(map(int, said))
