"""The built-in operators, by category. The registry reads :func:`descriptors`."""

from __future__ import annotations

from collections.abc import Iterator

from ..descriptor import OperatorDescriptor
from . import (
    activation,
    arithmetic,
    attention,
    comparison,
    convolution,
    elementwise,
    embedding,
    fft,
    gemm,
    indexing,
    losses,
    normalization,
    padding,
    pooling,
    reduction,
    resize,
    scan,
    selection,
    shape,
    softmax,
    sorting,
)

_FAMILIES = (
    elementwise,
    arithmetic,
    comparison,
    reduction,
    gemm,
    convolution,
    pooling,
    activation,
    normalization,
    softmax,
    indexing,
    sorting,
    shape,
    selection,
    padding,
    scan,
    losses,
    attention,
    embedding,
    fft,
    resize,
)


def descriptors() -> Iterator[OperatorDescriptor]:
    """Yield every built-in operator, category by category."""
    for family in _FAMILIES:
        yield from family.OPERATORS
