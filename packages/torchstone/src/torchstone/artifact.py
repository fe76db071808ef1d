"""The artifact: signature and zip format, read and written without torch and JAX.

One zip file holds ``module.stablehlo`` (portable bytecode), ``signature.json``
and ``weights.safetensors``. Its members are stored, not compressed, so a file
can claim no more than it holds. ``signature.json`` has the format version and
the SHA-256 of the two others; reading checks every field of it, and executes
nothing. Bytes that are not an artifact are one :class:`ArtifactError`.

Not here: how weights lie in their member (:mod:`torchstone.stored_weights`),
what calls a program (:mod:`torchstone.api`) or checks its module, which the
engine does when it compiles.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import mmap
import os
import stat
import struct
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy

from optest.files import NewFile

from .errors import ArtifactError
from .signature import (
    SIGNATURE,
    Damage,
    Signature,
    check_targets,
    check_trees,
    describe,
    get,
    parse_json,
    parse_signature,
    require,
)
from .stored_weights import ALIGNMENT, Layout, lay_out, read_weights

MODULE = "module.stablehlo"
WEIGHTS = "weights.safetensors"


@dataclass
class Artifact:
    """A program without torch: portable StableHLO bytecode, signature, weights as NumPy arrays."""

    module: bytes
    signature: Signature
    weights: dict[str, Any]


def save_artifact(path: str | Path, artifact: Artifact) -> Path:
    """Write ``artifact`` to ``path``, whole or not at all; the same artifact gives the same bytes.

    Weights go into the file one at a time, without a copy where they are contiguous. Raises
    :class:`ArtifactError` where the file cannot be written, or could not be read again.
    """
    target = Path(path)
    try:
        check_trees(artifact.signature)
    except Damage as damage:
        raise ArtifactError(
            f"cannot write the artifact {target}: {damage}",
            hint="keys of dicts must be strings, numbers or None, and each be there once",
        ) from damage
    try:
        with NewFile(target) as new:
            _write_zip(new.file, artifact)
    except OSError as error:
        raise ArtifactError(
            f"cannot write the artifact {target}: {error.strerror or error}",
            hint="check that the folder exists, can be written to, and has room",
        ) from error
    return target


def load_artifact(path: str | Path) -> Artifact:
    """The artifact stored at ``path``.

    Weights of some size are the file's own pages, mapped: they take memory only once, for all processes
    that read the file, and writing to them changes no file. Raises :class:`ArtifactVersionError` for a
    newer format, and :class:`ArtifactError` for a file that is missing, truncated, altered, or no
    artifact at all.
    """
    try:
        with _opened(Path(path)) as (file, archive):
            description = parse_json(archive.read(SIGNATURE))
            checksums = get(description, "sha256", dict)
            for name in (MODULE, WEIGHTS):
                same = get(checksums, name, str) == _checksum(archive, name)
                require(same, f"{name} is not what {SIGNATURE} says")
            signature = parse_signature(description)
            module = archive.read(MODULE)
            weights = read_weights(
                _content(file, archive.getinfo(WEIGHTS)), get(description, "weights", dict)
            )
        check_targets(signature, weights)
        return Artifact(module, signature, weights)
    except Damage as damage:
        raise ArtifactError(
            f"{path} is not a usable artifact: {_clipped(damage)}", hint=LOAD_HINT
        ) from damage
    except OSError as error:
        raise ArtifactError(f"cannot read the artifact {path}: {error.strerror or error}") from error


LOAD_HINT = "the file was cut off, changed or made by something else; export the program again"


_MOST_TEXT = 500


def _clipped(damage: Exception) -> str:
    """What is wrong; a file's own text may be in it, however long."""
    text = str(damage)
    half = _MOST_TEXT // 2
    return text if len(text) <= _MOST_TEXT else f"{text[:half]} … {text[-half:]}"


# --- the zip file ----------------------------------------------------------------------

_ZIP_OVERHEAD = 1024
"""Bytes; more than the headers of three members, less than room to hide something."""

_LOCAL_HEADER = 30
"""Bytes before a member's name. Its last two numbers are the lengths of that name and of the extra field."""

_ALIGNING = 0xD935
"""The kind of extra field by which zip files align a member (Android's zipalign)."""

_ZIP64_FROM = 1 << 30
"""Bytes from which a member gets :mod:`zipfile`'s longer header, which is 20 bytes more."""

_MAPPED_FROM = 1 << 20
"""Bytes from which weights are mapped: a mapping keeps a file descriptor open."""

_CHUNK = 1 << 20
"""Bytes that are read at a time for a checksum."""


class _Stream(io.BufferedIOBase):
    """A file without places, as pipes are; a device's are all 0, which misleads :mod:`zipfile`."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def write(self, content: Any) -> int:
        return self._file.write(content)


def _write_zip(file: BinaryIO, artifact: Artifact) -> None:
    """The signature comes last, because it has the checksums of the others."""
    seekable = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
    layout = lay_out(artifact.weights)
    with zipfile.ZipFile(file if seekable else _Stream(file), "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(zipfile.ZipInfo(MODULE), artifact.module)
        checksums = {
            MODULE: hashlib.sha256(artifact.module).hexdigest(),
            WEIGHTS: _write_weights(archive, layout, artifact.weights),
        }
        description = describe(artifact.signature, layout.forms, checksums)
        archive.writestr(zipfile.ZipInfo(SIGNATURE), json.dumps(description, indent=1).encode())


def _write_weights(archive: zipfile.ZipFile, layout: Layout, weights: Mapping[str, Any]) -> str:
    """Write the member, its data aligned in the file; returns its checksum."""
    assert archive.fp is not None
    long = layout.size >= _ZIP64_FROM
    info = zipfile.ZipInfo(WEIGHTS)
    begin = archive.fp.tell() + _LOCAL_HEADER + len(WEIGHTS) + (20 if long else 0)
    padding = -(begin + 6) % ALIGNMENT
    info.extra = struct.pack("<HHH", _ALIGNING, 2 + padding, ALIGNMENT) + bytes(padding)
    digest = hashlib.sha256()
    with archive.open(info, "w", force_zip64=long) as member:

        def write(part: Any) -> None:
            digest.update(part)
            member.write(part)

        layout.write(weights, write)
    return digest.hexdigest()


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[tuple[BinaryIO, zipfile.ZipFile]]:
    """The file and its members, which are those of an artifact; :mod:`zipfile` compares their checksums."""
    try:
        with open(path, "rb") as file, zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
            names = sorted(entry.filename for entry in entries)
            require(names == sorted((SIGNATURE, MODULE, WEIGHTS)), f"it contains {names}")
            require(
                all(entry.compress_type == zipfile.ZIP_STORED for entry in entries),
                "its members are compressed",
            )
            held = sum(entry.file_size for entry in entries)
            size = os.fstat(file.fileno()).st_size
            require(held <= size <= held + _ZIP_OVERHEAD, "its size is not that of its members")
            yield file, archive
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, ValueError) as error:
        raise Damage(str(error) or "it is cut off") from error


def _checksum(archive: zipfile.ZipFile, name: str) -> str:
    digest = hashlib.sha256()
    with archive.open(name) as member:
        while part := member.read(_CHUNK):
            digest.update(part)
    return digest.hexdigest()


def _content(file: BinaryIO, entry: zipfile.ZipInfo) -> numpy.ndarray[Any, Any]:
    """The bytes of a member: a private mapping of the file, or a copy where they are few."""
    file.seek(entry.header_offset)
    name, extra = struct.unpack("<HH", file.read(_LOCAL_HEADER)[-4:])
    begin = entry.header_offset + _LOCAL_HEADER + name + extra
    if entry.file_size < _MAPPED_FROM:
        file.seek(begin)
        return numpy.frombuffer(bytearray(file.read(entry.file_size)), numpy.uint8)
    mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    return numpy.frombuffer(mapping, numpy.uint8, entry.file_size, begin)
