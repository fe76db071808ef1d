"""Arrays as bytes outside this process: raw files, and the dtypes that they hold.

Bytes are in C order and in this machine's byte order, without a header.
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
    """What a backend left as an output is not the tensor that was asked for."""

    exit_code = 1


def dtype_named(name: str) -> np.dtype[Any]:
    """The dtype of a name such as ``bfloat16``. Raises :class:`UsageError`."""
    try:
        found = np.dtype(getattr(ml_dtypes, name, name))
        kind_of(found)
    except TypeError:
        raise UsageError(f"unknown dtype {name!r}: use a name such as float16, bfloat16 or int32") from None
    return found


def stored(array: Array, dtype: str, tensor: str) -> bytes:
    """The bytes of ``array`` as ``dtype``; raises :class:`Unsupported` where that changes a value."""
    changed, lost = _converted(array, dtype_named(dtype))
    if lost.any():
        raise Unsupported(f"{tensor} is {array.dtype}, and its values do not fit into the file's {dtype}")
    return changed.tobytes()


def fitted(array: Array, dtype: str, place: str) -> Array:
    """An output file's ``array`` as the tensor's ``dtype``; raises :class:`BadOutput` if a value changes."""
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
    """``array`` as ``target``, and where that changed a value."""
    if array.dtype == target:
        return array, np.zeros((), np.bool_)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", ComplexWarning)  # an imaginary part that is lost is found below
        changed = array.astype(target)
        kept = changed.astype(array.dtype)
        lost = (kept != array) & ((kept == kept) | (array == array))  # NaN stays NaN
    return changed, np.asarray(lost, np.bool_)


def restored(data: bytes, dtype: str, shape: Sequence[int], place: str) -> Array:
    """The array of ``shape`` that ``data`` holds; raises :class:`BadOutput` if it cannot be that."""
    target = dtype_named(dtype)
    _check_size(len(data), dtype, shape, place)
    if target == np.bool_:
        numbers = np.frombuffer(data, np.uint8)
        if numbers.size and numbers.max() > 1:
            raise BadOutput(f"{place} holds the byte {numbers.max()}; a bool is a byte 0 or 1")
    return np.frombuffer(data, target).reshape(shape).copy()


def write(path: Path, data: bytes) -> None:
    """Write a file, with the folders it is in. Raises :class:`BackendError`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    except OSError as error:
        raise BackendError(f"the input {path} cannot be written: {error.strerror}") from None


def holds(path: Path, data: bytes) -> bool:
    """Whether the file is still there with these bytes."""
    try:
        return path.stat().st_size == len(data) and path.read_bytes() == data
    except OSError:
        return False


def make_room(path: Path) -> None:
    """Take an old output file away, and make the folder for a new one. Raises :class:`BackendError`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
    except OSError as error:
        raise BackendError(
            f"the output {path} of an earlier run cannot be removed: {error.strerror}"
        ) from None


def read(path: Path, dtype: str, shape: Sequence[int], place: str) -> Array:
    """The array in an output file; raises :class:`BadOutput` if it is missing or does not hold that."""
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
