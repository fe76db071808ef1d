"""Small helpers of the NumPy implementations. Nothing here may come from the references."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Implementation = Callable[..., Any]
"""``implementation(*inputs, **attributes)``: an array or a tuple of them."""


def flattened(values: Array, dim: Any) -> tuple[Array, tuple[int, ...]]:
    """``values`` with the dimensions ``dim`` (None: all) merged into the last; also their numbers."""
    if dim is None or dim == () or values.ndim == 0:
        dims = tuple(range(values.ndim))
    else:
        dims = tuple(sorted(one % values.ndim for one in (dim if isinstance(dim, tuple) else (dim,))))
    kept = [i for i in range(values.ndim) if i not in dims]
    shape = [values.shape[i] for i in kept]
    merged = values.transpose(*kept, *dims).reshape(*shape, math.prod(values.shape[i] for i in dims))
    return merged, dims


def kept(result: Array, dims: tuple[int, ...], keepdim: bool) -> Array:
    """``result`` with dimensions of size 1 at ``dims`` if ``keepdim``."""
    return np.expand_dims(result, dims) if keepdim else result


def last(values: Array, dim: int) -> Array:
    """``dim`` as the last dimension; a scalar as a vector of one."""
    return np.swapaxes(values, dim, -1) if values.ndim else values.reshape(1)


def back(lines: Array, dim: int, like: Array) -> Array:
    """The inverse of :func:`last`."""
    return np.swapaxes(lines, dim, -1) if like.ndim else lines.reshape(())


def each(value: Any, count: int) -> tuple[Any, ...]:
    """``value`` for each of ``count`` dimensions."""
    if isinstance(value, tuple | list):
        return tuple(value) * (count if len(value) == 1 else 1)
    return (value,) * count


def by_element(function: Callable[[float], float]) -> Callable[[Array], Array]:
    """A Python function of one float, applied to each element; its dtype is the input's."""
    compiled = np.frompyfunc(function, 1, 1)
    return lambda values: np.asarray(compiled(values.astype(np.float64)), dtype=values.dtype)


erf = by_element(math.erf)
erfc = by_element(math.erfc)
