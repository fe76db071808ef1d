"""Sample shapes that every elementwise operator shares; no overload is registered here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from . import Make, Sample


def special_values(make: Make, *, zeros: bool = True) -> torch.Tensor:
    """The dtype's special values, with or without zeros, but no complex infinities and NaNs.

    Those have a test of their own, which compares part by part
    (``lowering/test_complex_extremes``).
    """
    edges = make.edges()
    edges = edges[edges.isfinite()] if make.is_complex else edges
    return edges if zeros else edges[edges != 0]


def singles(make: Make, *, zeros: bool = True, **options: Any) -> Iterator[Sample]:
    """Operands of a unary operator, special values (without zeros if not ``zeros``) included."""
    yield Sample((make(2, 3, **options),))
    # on a branch cut, the sign of a derivative depends on the sign of a zero
    yield Sample((special_values(make, zeros=zeros),), note="special values", gradient=not make.is_complex)
    yield Sample((make(**options),), note="0-d")
    yield Sample((make(0, 3, **options),), note="empty")
    yield Sample((make(1, 1, **options),), note="size 1")
    yield Sample((make.transposed(3, 4, **options),), note="non-contiguous")
    yield Sample((make(70, **options),), note="many")


def pairs(make: Make, **options: Any) -> Iterator[Sample]:
    """Yield operand pairs of a binary operator; ``options`` apply to the second operand."""
    yield Sample((make(2, 3), make(3, **options)), note="broadcast")
    yield Sample((make(), make(2, 3, **options)), note="0-d left")
    yield Sample((make(4), make(**options)), note="0-d right")
    yield Sample((make(0, 3), make(1, 3, **options)), note="empty")
    yield Sample((make(1, 1), make(1, **options)), note="size 1")
    yield Sample((make.transposed(3, 4), make(3, 4, **options)), note="non-contiguous")
    yield Sample((make(3), make(3, dtype=torch.int8, **options)), note="mixed with int8")
    yield Sample((make(3), make(3, dtype=torch.float64, **options)), note="mixed with float64")


def edge_pairs(make: Make, *, zeros: bool = True, gradient: bool = True) -> Iterator[Sample]:
    """Yield every special value with every other one; with ``zeros=False``, complex pairs have no zeros.

    ``gradient=False`` is for derivatives with subnormal steps, which XLA flushes to zero.
    """
    edges = special_values(make, zeros=zeros or not make.is_complex)
    # broadcast here, not in the operator: XLA replaces a division by a broadcast divisor by a multiplication
    # with its reciprocal, which is subnormal for the largest numbers
    # which is subnormal for the largest numbers
    left, right = torch.broadcast_tensors(edges[:, None], edges)
    yield Sample((left.contiguous(), right.contiguous()), note="special values", gradient=gradient)


def with_number(make: Make, *numbers: Any) -> Iterator[Sample]:
    """Yield a tensor and a Python number: every number with a matrix, the first one with other shapes too."""
    for number in numbers:
        yield Sample((make(2, 3), number))
    yield Sample((make(), numbers[0]), note="0-d")
    yield Sample((make(0), numbers[0]), note="empty")
    yield Sample((special_values(make), numbers[0]), note="special values")


def number_with(make: Make, *numbers: Any, **options: Any) -> Iterator[Sample]:
    """A Python number and a tensor."""
    for number in numbers:
        yield Sample((number, make(2, 3, **options)))
    yield Sample((numbers[0], make(**options)), note="0-d")
    yield Sample((numbers[0], make(0)), note="empty")
