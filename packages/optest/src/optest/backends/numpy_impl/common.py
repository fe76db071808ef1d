"""Small helpers of the NumPy implementations. Nothing here may come from the references."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Implementation = Callable[..., Any]
"""A function ``implementation(*inputs, **attributes)`` that returns an array or a tuple of arrays."""


def flattened(values: Array, dim: Any) -> tuple[Array, tuple[int, ...]]:
    """Merge the dimensions ``dim`` (None: all) into the last; return the array and the merged dimensions."""
    if dim is None or dim == () or values.ndim == 0:
        dims = tuple(range(values.ndim))
    else:
        dims = tuple(sorted(one % values.ndim for one in (dim if isinstance(dim, tuple) else (dim,))))
    kept = [i for i in range(values.ndim) if i not in dims]
    shape = [values.shape[i] for i in kept]
    merged = values.transpose(*kept, *dims).reshape(*shape, math.prod(values.shape[i] for i in dims))
    return merged, dims


def kept(result: Array, dims: tuple[int, ...], keepdim: bool) -> Array:
    """Return ``result``, with dimensions of size 1 inserted at ``dims`` if ``keepdim``."""
    return np.expand_dims(result, dims) if keepdim else result


def last(values: Array, dim: int) -> Array:
    """Move ``dim`` to the last dimension; a scalar becomes a vector with one element."""
    return np.swapaxes(values, dim, -1) if values.ndim else values.reshape(1)


def back(lines: Array, dim: int, like: Array) -> Array:
    """The inverse of :func:`last`."""
    return np.swapaxes(lines, dim, -1) if like.ndim else lines.reshape(())


def each(value: Any, count: int) -> tuple[Any, ...]:
    """Return ``value`` as a tuple with one item for each of ``count`` dimensions."""
    if isinstance(value, tuple | list):
        return tuple(value) * (count if len(value) == 1 else 1)
    return (value,) * count


def by_element(function: Callable[[float], float]) -> Callable[[Array], Array]:
    """Return a function that applies ``function`` to each element; the result has the dtype of the input."""
    compiled = np.frompyfunc(function, 1, 1)
    return lambda values: np.asarray(compiled(values.astype(np.float64)), dtype=values.dtype)


erf = by_element(math.erf)
erfc = by_element(math.erfc)
