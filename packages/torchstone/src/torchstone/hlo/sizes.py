"""The largest size that a value may have."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..dtypes import DType
from ..errors import UnsupportedShape

_BYTES = 1 << 62


def require_addressable(shape: Sequence[Any], dtype: DType) -> None:
    """Raise :class:`UnsupportedShape` for a size that no memory can hold; ignores symbolic dimensions.

    XLA terminates the process if the number of bytes overflows.
    """
    known = [dim for dim in shape if isinstance(dim, int)]
    if dtype.itemsize * math.prod(known) >= _BYTES:
        raise UnsupportedShape(
            f"a value of {dtype}[{', '.join(map(str, shape))}] has 2^62 bytes or more,"
            " which cannot be addressed",
            hint="correct the sizes, or compute the result from the tensor before it was expanded",
        )
