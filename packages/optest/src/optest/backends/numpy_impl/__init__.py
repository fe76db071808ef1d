"""A second implementation of every built-in operator, in the case's own dtype.

It shares no code with the references and prefers other formulas, so that each checks
the other. float16, bfloat16 and 8-bit floats compute in float32, as hardware does;
all other dtypes in themselves. The driver around it is ``numpy_driver``.
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
"""Operators whose result depends on the limits of the very dtype: they are given narrow floats as such."""

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
    """The outputs of operator ``name``, in ``dtypes``. Raises ``KeyError`` for an unknown one."""
    implementation = IMPLEMENTATIONS[name]
    prepare = np.asarray if name in _LIMITED_BY_DTYPE else _computable
    with np.errstate(all="ignore"):
        found = implementation(*map(prepare, inputs), **attributes)
        results = found if isinstance(found, tuple) else (found,)
        return tuple(np.asarray(one).astype(dtype) for one, dtype in zip(results, dtypes, strict=True))


def _computable(values: Array) -> Array:
    """Floats narrower than 32 bits as float32; NumPy has no arithmetic for most of them."""
    values = np.asarray(values)
    narrow = values.dtype.kind not in "biuc" and values.dtype.itemsize < 4
    return values.astype(np.float32) if narrow else values
