"""A second implementation of every built-in operator, in the case's own dtype.

It shares no code with the references and uses other formulas where it can, so that each checks the other.
float16, bfloat16 and 8-bit floats are computed in float32, as hardware does; all other dtypes are computed in
the dtype itself. ``numpy_driver`` is the driver that calls it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from . import (
    activation,
    arithmetic,
    convolution,
    elementwise,
    indexing,
    losses,
    normalization,
    pooling,
    reduction,
    shape,
    sorting,
    transforms,
)
from .common import Array, Implementation

_LIMITED_BY_DTYPE = frozenset({"nan_to_num"})
"""Operators whose result depends on the limits of the dtype, so narrow floats are not converted for them."""

IMPLEMENTATIONS: dict[str, Implementation] = {}
for _family in (
    elementwise,
    arithmetic,
    reduction,
    convolution,
    pooling,
    activation,
    normalization,
    indexing,
    sorting,
    shape,
    losses,
    transforms,
):
    IMPLEMENTATIONS |= _family.OPERATORS


def compute(
    name: str, inputs: tuple[Array, ...], attributes: Mapping[str, Any], dtypes: tuple[str, ...]
) -> tuple[Array, ...]:
    """Return the outputs of operator ``name``, in ``dtypes``. Raises ``KeyError`` for an unknown operator."""
    implementation = IMPLEMENTATIONS[name]
    prepare = np.asarray if name in _LIMITED_BY_DTYPE else _computable
    with np.errstate(all="ignore"):
        found = implementation(*map(prepare, inputs), **attributes)
        results = found if isinstance(found, tuple) else (found,)
        return tuple(np.asarray(one).astype(dtype) for one, dtype in zip(results, dtypes, strict=True))


def _computable(values: Array) -> Array:
    """Convert floats narrower than 32 bits to float32, because NumPy has no arithmetic for most of them."""
    values = np.asarray(values)
    narrow = values.dtype.kind not in "biuc" and values.dtype.itemsize < 4
    return values.astype(np.float32) if narrow else values
