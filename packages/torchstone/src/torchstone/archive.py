"""Zip files with programs and weights: written completely or not at all, read without copies.

Members are stored without compression, so a file cannot expand to more than its own size. Reading executes
nothing. All weights are in one member, whose data is aligned in the file so that it can be memory-mapped.
Every defect of a file is reported as an :class:`ArtifactError`.

Not here: which members a file has and what they contain (:mod:`torchstone.artifact`,
:mod:`torchstone.generation`), and the layout of the weights member (:mod:`torchstone.stored_weights`).
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import mmap
import os
import stat
import struct
import zipfile
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy

from optest.files import NewFile

from .errors import ArtifactError
from .signature import Damage, StoredForm, require
from .stored_weights import ALIGNMENT, lay_out, read_weights

WEIGHTS = "weights.safetensors"

LOAD_HINT = "the file was cut off, changed or made by something else; export the program again"


class Writer:
    """A new file to which members are added, in order; ``checksums`` has the SHA-256 of each."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self.checksums: dict[str, str] = {}

    def add(self, name: str, content: bytes) -> None:
        self._archive.writestr(zipfile.ZipInfo(name), content)
        self.checksums[name] = hashlib.sha256(content).hexdigest()

    def add_weights(self, weights: Mapping[str, Any]) -> Mapping[str, StoredForm]:
        """Write the member :data:`WEIGHTS` with aligned data; return the stored form of each weight."""
        archive, layout = self._archive, lay_out(weights)
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
        self.checksums[WEIGHTS] = digest.hexdigest()
        return layout.forms


class Reader:
    """An open file whose members can be read; :mod:`zipfile` checks the CRC of each."""

    def __init__(self, file: BinaryIO, archive: zipfile.ZipFile) -> None:
        self._file = file
        self._archive = archive

    @property
    def members(self) -> list[str]:
        """The names of the members, sorted; a name that occurs twice is listed twice."""
        return sorted(self._archive.namelist())

    def require_members(self, names: Collection[str]) -> None:
        """Raise :class:`Damage` unless the file has exactly these members."""
        require(self.members == sorted(names), f"it contains {self.members}")

    def read(self, name: str) -> bytes:
        return self._archive.read(name)

    def checksum(self, name: str) -> str:
        """Return the SHA-256 of a member, in hexadecimal."""
        digest = hashlib.sha256()
        with self._archive.open(name) as member:
            while part := member.read(_CHUNK):
                digest.update(part)
        return digest.hexdigest()

    def weights(self, declared: Mapping[str, Any]) -> dict[str, numpy.ndarray[Any, Any]]:
        """Return the weights that ``declared`` describes: memory-mapped, or copied if they are small."""
        return read_weights(self._content(self._archive.getinfo(WEIGHTS)), declared)

    def _content(self, entry: zipfile.ZipInfo) -> numpy.ndarray[Any, Any]:
        """Return the bytes of a member: a private mapping of the file, or a copy if the member is small."""
        file = self._file
        file.seek(entry.header_offset)
        name, extra = struct.unpack("<HH", file.read(_LOCAL_HEADER)[-4:])
        begin = entry.header_offset + _LOCAL_HEADER + name + extra
        if entry.file_size < _MAPPED_FROM:
            file.seek(begin)
            return numpy.frombuffer(bytearray(file.read(entry.file_size)), numpy.uint8)
        mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        return numpy.frombuffer(mapping, numpy.uint8, entry.file_size, begin)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[Writer]:
    """Yield a :class:`Writer` for a new file, which appears at ``path`` when the block ends.

    Raises :class:`ArtifactError` if the file cannot be written.
    """
    try:
        with NewFile(path) as new:
            seekable = stat.S_ISREG(os.fstat(new.file.fileno()).st_mode)
            target = new.file if seekable else _Stream(new.file)
            with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
                yield Writer(archive)
    except OSError as error:
        raise ArtifactError(
            f"cannot write the artifact {path}: {error.strerror or error}",
            hint="check that the folder exists, can be written to, and has room",
        ) from error


@contextlib.contextmanager
def reading(path: str | Path) -> Iterator[Reader]:
    """Yield a :class:`Reader`; a :class:`Damage` raised in the block becomes an :class:`ArtifactError`."""
    try:
        with _opened(Path(path)) as reader:
            yield reader
    except Damage as damage:
        raise ArtifactError(
            f"{path} is not a usable artifact: {_clipped(damage)}", hint=LOAD_HINT
        ) from damage
    except OSError as error:
        raise ArtifactError(f"cannot read the artifact {path}: {error.strerror or error}") from error


_MOST_TEXT = 500


def _clipped(damage: Exception) -> str:
    """Return the error's text, shortened: it may quote text of any length from the file."""
    text = str(damage)
    half = _MOST_TEXT // 2
    return text if len(text) <= _MOST_TEXT else f"{text[:half]} … {text[-half:]}"


_HEADERS = 1024
"""Bytes allowed for the headers of three members: enough for them, and too few to hide other data in."""

_LOCAL_HEADER = 30
"""Bytes before a member's name. The last two numbers in them are the lengths of the name and extra field."""

_ALIGNING = 0xD935
"""The kind of extra field by which zip files align a member (Android's zipalign)."""

_ZIP64_FROM = 1 << 30
"""Size in bytes from which a member gets the longer header of :mod:`zipfile`: 20 bytes more."""

_MAPPED_FROM = 1 << 20
"""Size in bytes from which weights are mapped. Smaller ones are not: a mapping keeps a descriptor open."""

_CHUNK = 1 << 20
"""How many bytes are read at a time for a checksum."""


class _Stream(io.BufferedIOBase):
    """A file that cannot tell its position, for pipes and devices.

    A device reports position 0 always, which would mislead :mod:`zipfile`.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def write(self, content: Any) -> int:
        return self._file.write(content)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Reader]:
    try:
        with open(path, "rb") as file, zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
            require(
                all(entry.compress_type == zipfile.ZIP_STORED for entry in entries),
                "its members are compressed",
            )
            held = sum(entry.file_size for entry in entries)
            size = os.fstat(file.fileno()).st_size
            most = held + _HEADERS * max(1, len(entries) // 3)
            require(held <= size <= most, "its size is not that of its members")
            yield Reader(file, archive)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, ValueError) as error:
        raise Damage(str(error) or "it is cut off") from error
