"""References of comparisons."""

from __future__ import annotations

import numpy as np

from .wide import Array, by_numpy, reference

eq_reference = by_numpy(np.equal)
ne_reference = by_numpy(np.not_equal)
lt_reference = by_numpy(np.less)
le_reference = by_numpy(np.less_equal)
gt_reference = by_numpy(np.greater)
ge_reference = by_numpy(np.greater_equal)


@reference
def isclose_reference(left: Array, right: Array, *, rtol: float, atol: float, equal_nan: bool) -> Array:
    near = np.isfinite(right) & (np.abs(left - right) <= atol + np.abs(rtol * right))
    both = np.isnan(left) & np.isnan(right) if equal_nan else False
    return (left == right) | near | both


isnan_reference = by_numpy(np.isnan)
isinf_reference = by_numpy(np.isinf)
isfinite_reference = by_numpy(np.isfinite)


@reference
def signbit_reference(values: Array) -> Array:
    return np.signbit(values) if values.dtype.kind == "f" else values < 0
