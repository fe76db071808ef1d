"""Checking that inputs are only read: copies to compare with, and an error that names the code that wrote."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputWritten

if TYPE_CHECKING:
    from .case import TestCase

Array = NDArray[Any]


def hash_of(arrays: Sequence[Array]) -> str:
    """Return a checksum (8 hex digits) of all shapes and bits; not a slower hash, as arrays are large."""
    found = 0
    for one in arrays:
        found = zlib.crc32(_bits(one).data, zlib.crc32(repr(one.shape).encode(), found))
    return f"{found:08x}"


def copies(arrays: Sequence[Array]) -> tuple[Array, ...]:
    """Return copies of the arrays, with the same order of dimensions in memory."""
    return tuple(one.copy(order="K") for one in arrays)


def require_unwritten(
    writer: str,
    case: TestCase,
    arrays: Sequence[Array],
    originals: Sequence[Array],
    allowed: Sequence[str] = (),
) -> None:
    """Raise :class:`InputWritten` if any bit of the case's inputs differs from ``originals``.

    ``allowed`` are the inputs that may be written.
    """
    written = [
        name
        for name, one, original in zip(case.descriptor.inputs, arrays, originals, strict=True)
        if name not in allowed and not np.array_equal(_bits(one), _bits(original))
    ]
    if written:
        raise InputWritten(
            f"{writer} wrote into {' and '.join(written)}, which it must only read", "let it work on a copy"
        )


def _bits(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
