"""The wider types that references compute in.

float16, bfloat16, float32 and 8-bit floats become float64, and float64 becomes
longdouble; complex types are widened likewise. Integers become int64, whose arithmetic
modulo 2**64 is also exact modulo any narrower width.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Reference = Callable[[tuple[Array, ...], Mapping[str, Any]], tuple[Array, ...]]

PI = np.longdouble("3.14159265358979323846264338327950288")


def widened(values: Array) -> Array:
    """Return ``values`` in the type that references compute in."""
    kind, size = values.dtype.kind, values.dtype.itemsize
    if kind == "b":
        return values
    if kind in "iu":
        return values.astype(np.int64)
    if kind == "c":
        return values.astype(np.complex128 if size == 8 else np.clongdouble)
    return values.astype(np.longdouble if size == 8 else np.float64)


def reference(function: Callable[..., Any]) -> Reference:
    """Turn ``function(*wide_inputs, **attributes)`` into a reference, as descriptors name it.

    The function may return one array or a tuple; division by zero, overflow and
    invalid operations give infinities and NaN without a warning.
    """

    @wraps(function)
    def call(inputs: tuple[Array, ...], attributes: Mapping[str, Any]) -> tuple[Array, ...]:
        with np.errstate(all="ignore"):
            found = function(*(widened(np.asarray(one)) for one in inputs), **attributes)
        return tuple(map(np.asarray, found if isinstance(found, tuple) else (found,)))

    return call


def by_numpy(function: Callable[..., Array]) -> Reference:
    """Return a reference for ``function``, which NumPy computes element by element."""
    return reference(lambda *inputs: function(*inputs))


def is_float(values: Array) -> bool:
    """Whether a wide array holds real floating numbers."""
    return values.dtype.kind == "f"


def all_axes(dim: int | tuple[int, ...] | None, rank: int) -> tuple[int, ...]:
    """Return ``dim`` as axes counted from the front; None and () mean all, and a scalar has none."""
    if dim is None or dim == ():
        return tuple(range(rank))
    if rank == 0:
        return ()
    return tuple(one % rank for one in (dim if isinstance(dim, tuple) else (dim,)))


def lined_up(values: Array, dim: int) -> Array:
    """Return ``values`` with ``dim`` moved to the end; a scalar becomes a vector of one element."""
    return np.moveaxis(np.atleast_1d(values), dim, -1)


def put_back(values: Array, dim: int, like: Array) -> Array:
    """Undo :func:`lined_up`, for results from ``like``."""
    return np.moveaxis(values, -1, dim) if like.ndim else values.reshape(())
