"""Tensors in safetensors files: writes them in parallel with checksums, and reads them mapped or checked.

The checksum of a tensor is a list of CRC-32 values, one for each :data:`CHUNK` bytes of its data. So several
threads can check a large tensor, and a small part can be checked without the rest. The header of a file has a
checksum too, so that every byte of a file is covered. Checksums find damage, not forgery.
"""

from __future__ import annotations

import errno
import json
import os
import weakref
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import torch
from safetensors import safe_open

from .. import dtypes
from .output import Output

CHUNK = 8 << 20
"""The bytes of one checksum: enough to make the cost per call negligible, few enough to fit in a cache."""
_THREADS = 4
"""Threads that write or check a file. They mostly wait for the disk, so there may be more than processors."""
_HEADER = 8
"""The bytes at the start of a safetensors file that hold the length of its header."""
_ALIGNMENT = 64
"""The alignment of a file's data. Kernels of PyTorch may need 16 bytes to read mapped complex128."""
_CODES = {dtype.name: code for dtype, code in dtypes.SAFETENSORS.items()}
"""The codes of safetensors by the names of dtypes. A tensor of any other dtype is stored as its bytes."""


@dataclass(frozen=True)
class StoredTensor:
    """Where a tensor is stored, its dtype and shape, and the checksums of its bytes.

    ``strides`` is only set for a dense tensor whose memory is not in the order of its dimensions.
    """

    file: int
    key: str
    dtype: str
    shape: tuple[int, ...]
    crc32: tuple[int, ...]
    strides: tuple[int, ...] | None = None


@dataclass(frozen=True)
class StoredFile:
    """A file of a checkpoint: its name, its size, and the checksum of everything before the data."""

    name: str
    size: int
    header_crc32: int


class Damage(Exception):
    """Says what is wrong with a file. Callers turn it into the single error that users see."""


def plan(sizes: Iterable[tuple[str, int]], limit: int) -> list[tuple[str, list[int]]]:
    """Distribute tensors, given as ``(section, bytes)``, to files, returned as ``(section, tensor numbers)``.

    A file holds tensors of one section, and at most ``limit`` bytes unless a single tensor is larger.
    """
    files: list[tuple[str, list[int]]] = []
    held: dict[str, int] = {}
    place: dict[str, list[int]] = {}
    for number, (section, size) in enumerate(sizes):
        if section not in place or held[section] + size > limit:
            place[section], held[section] = [], 0
            files.append((section, place[section]))
        place[section].append(number)
        held[section] += size
    return files


class Writer:
    """Writes files of tensors with a few threads: while some wait for the disk, others compute checksums."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="torchstone-checkpoint")

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def write(
        self, path: Path, number: int, tensors: Sequence[tuple[str, torch.Tensor]]
    ) -> tuple[StoredFile, dict[str, StoredTensor]]:
        """Write ``(key, tensor)`` pairs to the new file ``path``, the ``number``-th one, durably."""
        # The widest elements come first, so that every tensor in a mapped file is aligned.
        ordered = sorted(tensors, key=lambda one: -one[1].element_size())
        header, begin = _header(ordered)
        found: dict[str, StoredTensor] = {}
        sums: dict[str, list[Future[int]]] = {}
        output = Output(path)
        try:
            output.write(memoryview(header), 0)
            at = begin
            for key, tensor in ordered:
                data = _bytes_of(tensor)
                sums[key] = []
                for start in range(0, len(data), CHUNK):
                    sums[key].append(self._start(output, data[start : start + CHUNK], at + start))
                if tensor.device.type != "cpu":
                    for one in sums[key]:  # so that only one copy of a device's tensor exists at a time
                        one.result()
                at += len(data)
            for key, tensor in ordered:
                found[key] = StoredTensor(
                    number,
                    key,
                    str(tensor.dtype).removeprefix("torch."),
                    tuple(tensor.shape),
                    tuple(one.result() for one in sums[key]),
                    _odd_strides(tensor),
                )
            output.sync()
        finally:
            # All writes must end before the file is closed: another one may get its descriptor.
            for one in (future for futures in sums.values() for future in futures):
                if not one.cancel():
                    one.exception()
            output.close()
        return StoredFile(path.name, at, zlib.crc32(header)), found

    def _start(self, output: Output, data: memoryview, at: int) -> Future[int]:
        """Write a chunk in another thread, or in this one if the process ends and cannot start threads."""
        try:
            return self._pool.submit(_write_chunk, output, data, at)
        except RuntimeError:
            done: Future[int] = Future()
            done.set_result(_write_chunk(output, data, at))
            return done


def _header(tensors: Sequence[tuple[str, torch.Tensor]]) -> tuple[bytes, int]:
    """Return the bytes before the data in a safetensors file, and their number."""
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for key, tensor in tensors:
        size = tensor.numel() * tensor.element_size()
        code = _CODES.get(str(tensor.dtype).removeprefix("torch."))
        entries[key] = {
            "dtype": code or "U8",
            "shape": list(tensor.shape) if code else [size],
            "data_offsets": [at, at + size],
        }
        at += size
    text = json.dumps(entries, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-(_HEADER + len(text)) % _ALIGNMENT)
    return len(text).to_bytes(_HEADER, "little") + text, _HEADER + len(text)


def _bytes_of(tensor: torch.Tensor) -> memoryview:
    """Return the elements' bytes in the order of the dimensions, without a copy if they are stored so."""
    host = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    raw: Any = host.reshape(-1).view(torch.uint8).numpy()
    return memoryview(raw)


def _odd_strides(tensor: torch.Tensor) -> tuple[int, ...] | None:
    """Return the strides of a dense tensor that is not contiguous (such as channels last), otherwise None."""
    odd = not tensor.is_contiguous() and _is_dense(tensor.shape, tensor.stride())
    return tuple(tensor.stride()) if odd else None


def _is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether the elements fill their memory without gaps, in some order of the dimensions."""
    expected = 1
    for stride, size in sorted(zip(strides, shape, strict=True)):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def _write_chunk(output: Output, data: memoryview, at: int) -> int:
    total = zlib.crc32(data)
    output.write(data, at)
    return total


class Reader:
    """The tensors of a checkpoint's files, which are all opened at once: a replaced one stays readable."""

    def __init__(self, folder: Path, files: Sequence[StoredFile], tensors: Sequence[StoredTensor]) -> None:
        self._files, self._tensors = files, tensors
        self._opened = [_open(folder / one.name, one) for one in files]
        self._made: WeakValueDictionary[tuple[int, bool], torch.Tensor] = WeakValueDictionary()

    def tensor(self, number: int, *, mapped: bool) -> torch.Tensor:
        """Return one tensor on the CPU. While it is in use, the same object is returned, for tied weights."""
        found = self._made.get((number, mapped))
        if found is None:
            found = self._made[number, mapped] = self._read(self._stored(number), mapped=mapped)
        return found

    def _stored(self, number: int) -> StoredTensor:
        if not 0 <= number < len(self._tensors):
            raise Damage(f"a value names the tensor {number}, which is not in the manifest")
        return self._tensors[number]

    def _read(self, stored: StoredTensor, *, mapped: bool) -> torch.Tensor:
        dtype = getattr(torch, stored.dtype, None)
        if not isinstance(dtype, torch.dtype):
            raise Damage(f"{stored.key!r} has the dtype {stored.dtype}, which this PyTorch lacks")
        try:
            raw: torch.Tensor = self._opened[stored.file].tensors.get_tensor(stored.key)
            raw = raw.reshape(-1).view(torch.uint8)
            if stored.strides is not None:
                return _laid_out(raw, dtype, stored)
            # Copy as bytes, because not every dtype has a kernel that copies.
            return (raw if mapped else raw.clone()).view(dtype).reshape(stored.shape)
        except Exception as error:  # safetensors has one error class for everything
            raise Damage(f"{stored.key!r} is not in the file as the manifest says: {error}") from error

    def check(self, numbers: Iterable[int]) -> None:
        """Compare these tensors with their checksums. Raises :class:`Damage` for the first that differs."""
        chunks = [chunk for number in sorted(set(numbers)) for chunk in self._chunks(self._stored(number))]
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="torchstone-checkpoint") as pool:
            for damage in pool.map(_check_chunk, chunks):
                if damage is not None:
                    raise Damage(damage)

    def _chunks(self, stored: StoredTensor) -> Iterator[tuple[int, str, str, int, int, int]]:
        opened, name = self._opened[stored.file], self._files[stored.file].name
        begin, end = opened.place_of(stored.key)
        if len(stored.crc32) != -(-(end - begin) // CHUNK):
            raise Damage(f"{stored.key!r} in {name} does not have the size that the manifest says")
        for crc32, start in zip(stored.crc32, range(begin, end, CHUNK), strict=True):
            yield opened.descriptor, name, stored.key, start, min(CHUNK, end - start), crc32

    def close(self) -> None:
        """Close the files; tensors that are mapped stay readable."""
        for one in self._opened:
            one.close()


_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128}


def _laid_out(raw: torch.Tensor, dtype: torch.dtype, stored: StoredTensor) -> torch.Tensor:
    """Return the tensor with its stored strides, in new memory."""
    if stored.strides is None or not _is_dense(stored.shape, stored.strides):
        raise Damage(f"{stored.key!r} cannot have the strides {stored.strides}")
    word = _WORDS[dtype.itemsize]
    made = torch.empty_strided(stored.shape, stored.strides, dtype=word)
    return made.copy_(raw.view(word).reshape(stored.shape)).view(dtype)


@dataclass
class _Opened:
    """An open file of tensors, of which everything but the data has been checked."""

    tensors: Any
    descriptor: int
    header: Mapping[str, Any]
    begin: int

    def __post_init__(self) -> None:
        self.close_descriptor = weakref.finalize(self, os.close, self.descriptor)

    def place_of(self, key: str) -> tuple[int, int]:
        try:
            start, end = self.header[key]["data_offsets"]
            return self.begin + start, self.begin + end
        except (KeyError, TypeError, ValueError) as error:
            raise Damage(f"{key!r} is not in the file that the manifest names") from error

    def close(self) -> None:
        self.close_descriptor()
        self.tensors = None


def _open(path: Path, stored: StoredFile) -> _Opened:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(descriptor).st_size
        if size != stored.size:
            raise Damage(f"{stored.name} has {size:,} bytes instead of {stored.size:,}")
        length = int.from_bytes(os.pread(descriptor, _HEADER, 0), "little")
        if not 0 <= length <= size - _HEADER:
            raise Damage(f"the header of {stored.name} is damaged")
        head = os.pread(descriptor, _HEADER + length, 0)
        if zlib.crc32(head) != stored.header_crc32:
            raise Damage(f"the header of {stored.name} is damaged")
        return _Opened(_mapped(path), descriptor, json.loads(head[_HEADER:]), _HEADER + length)
    except BaseException:
        os.close(descriptor)
        raise


def _mapped(path: Path) -> safe_open:
    """Open the file at ``path`` by its name; raise FileNotFoundError if it has been removed."""
    try:
        return safe_open(path, framework="pt", device="cpu")
    except Exception as error:
        if path.exists():
            raise
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from error


def _check_chunk(chunk: tuple[int, str, str, int, int, int]) -> str | None:
    descriptor, name, key, at, size, crc32 = chunk
    data = os.pread(descriptor, size, at)
    whole = len(data) == size and zlib.crc32(data) == crc32
    return None if whole else f"the data of {key!r} in {name} is damaged"
