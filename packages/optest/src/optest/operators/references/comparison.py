"""References of comparisons."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .wide import Array, Reference, reference


def _of(function: Callable[..., Array]) -> Reference:
    return reference(lambda *inputs: function(*inputs))


eq_reference = _of(np.equal)
ne_reference = _of(np.not_equal)
lt_reference = _of(np.less)
le_reference = _of(np.less_equal)
gt_reference = _of(np.greater)
ge_reference = _of(np.greater_equal)
isnan_reference = _of(np.isnan)
isinf_reference = _of(np.isinf)
isfinite_reference = _of(np.isfinite)


@reference
def signbit_reference(values: Array) -> Array:
    return np.signbit(values) if values.dtype.kind == "f" else values < 0


@reference
def isclose_reference(left: Array, right: Array, *, rtol: float, atol: float, equal_nan: bool) -> Array:
    near = np.isfinite(right) & (np.abs(left - right) <= atol + np.abs(rtol * right))
    both = np.isnan(left) & np.isnan(right) if equal_nan else False
    return (left == right) | near | both
