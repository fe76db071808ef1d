"""Reading and writing arrays as raw bytes, for programs outside this process.

The bytes are in C order and in this machine's byte order, without a header.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.exceptions import ComplexWarning
from numpy.typing import NDArray

from ..core.dtypes import kind_of
from ..errors import BackendError, OptestError, UsageError
from .driver import Unsupported

Array = NDArray[Any]


class BadOutput(OptestError):
    """An output of a backend is missing or is not the requested tensor."""

    exit_code = 1


def dtype_named(name: str) -> np.dtype[Any]:
    """Return the dtype with a name such as ``bfloat16``. Raises :class:`UsageError` for an unknown name."""
    try:
        found = np.dtype(getattr(ml_dtypes, name, name))
        kind_of(found)
    except TypeError:
        raise UsageError(f"unknown dtype {name!r}: use a name such as float16, bfloat16 or int32") from None
    return found


def stored(array: Array, dtype: str, tensor: str) -> bytes:
    """Return the bytes of ``array`` as ``dtype``; raise :class:`Unsupported` if that changes a value."""
    changed, lost = _converted(array, dtype_named(dtype))
    if lost.any():
        raise Unsupported(f"{tensor} is {array.dtype}, and its values do not fit into the file's {dtype}")
    return changed.tobytes()


def fitted(array: Array, dtype: str, place: str) -> Array:
    """Convert the ``array`` of an output file to ``dtype``; raise :class:`BadOutput` if a value changes."""
    changed, lost = _converted(array, dtype_named(dtype))
    if lost.any():
        index = tuple(map(int, np.argwhere(lost)[0]))
        raise BadOutput(
            f"{place} holds {array.dtype} values that {dtype}, the dtype of the output, does not have: "
            f"{array[index]!s} at {list(index)} would become {changed[index]!s} "
            f"({np.count_nonzero(lost)} of {lost.size} elements change): write {dtype}"
        )
    return changed


def _converted(array: Array, target: np.dtype[Any]) -> tuple[Array, NDArray[np.bool_]]:
    """Return ``array`` as ``target``, and a mask of the values that this changes."""
    if array.dtype == target:
        return array, np.zeros((), np.bool_)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", ComplexWarning)  # the check below finds a lost imaginary part
        changed = array.astype(target)
        kept = changed.astype(array.dtype)
        lost = (kept != array) & ((kept == kept) | (array == array))  # NaN stays NaN
    return changed, np.asarray(lost, np.bool_)


def restored(data: bytes, dtype: str, shape: Sequence[int], place: str) -> Array:
    """Return the array of ``shape`` in ``data``; raise :class:`BadOutput` if ``data`` does not fit."""
    target = dtype_named(dtype)
    _check_size(len(data), dtype, shape, place)
    if target == np.bool_:
        numbers = np.frombuffer(data, np.uint8)
        if numbers.size and numbers.max() > 1:
            raise BadOutput(f"{place} holds the byte {numbers.max()}; a bool is a byte 0 or 1")
    return np.frombuffer(data, target).reshape(shape).copy()


def write(path: Path, data: bytes) -> None:
    """Write a file, and make its folders. Raises :class:`BackendError` if it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    except OSError as error:
        raise BackendError(f"the input {path} cannot be written: {error.strerror}") from None


def holds(path: Path, data: bytes) -> bool:
    """Whether the file exists and has exactly these bytes."""
    try:
        return path.stat().st_size == len(data) and path.read_bytes() == data
    except OSError:
        return False


def make_room(path: Path) -> None:
    """Remove an old output file and make the folder for a new one. Raises :class:`BackendError`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
    except OSError as error:
        raise BackendError(
            f"the output {path} of an earlier run cannot be removed: {error.strerror}"
        ) from None


def read(path: Path, dtype: str, shape: Sequence[int], place: str) -> Array:
    """Return the array in an output file; raise :class:`BadOutput` if it is missing or does not fit."""
    if not path.exists():
        raise BadOutput(f"{place} was not written: there is no file {path}")
    if not path.is_file():
        raise BadOutput(f"{place} is not a file: {path}")
    try:
        _check_size(path.stat().st_size, dtype, shape, place)  # before a file of any size is read
        return restored(path.read_bytes(), dtype, shape, place)
    except OSError as error:
        raise BadOutput(f"{place} cannot be read: {error.strerror}: {path}") from None


def _check_size(found: int, dtype: str, shape: Sequence[int], place: str) -> None:
    expected = math.prod(shape) * dtype_named(dtype).itemsize
    if found != expected:
        raise BadOutput(f"{place} has {found} bytes; {dtype} of shape {list(shape)} has {expected}")
