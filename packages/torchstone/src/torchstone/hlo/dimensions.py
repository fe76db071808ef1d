"""Dimensions: an ``int``, or a symbol.

A symbol is any object that supports integer arithmetic and carries a SymPy expression as ``.node.expr``
(PyTorch's ``SymInt`` does). Not here: dimensions as SSA scalars (:mod:`.value`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import UnsupportedShape

Dim = Any
"""``int``, or a symbolic integer with a SymPy expression at ``.node.expr``."""
Shape = tuple[Dim, ...]


def is_static(shape: Sequence[Dim]) -> bool:
    """True if every dimension is an ``int``."""
    return all(isinstance(dim, int) for dim in shape)


def dim_key(dim: Dim) -> Any:
    """The identity of a dimension: the ``int`` itself, or the symbol's SymPy expression."""
    if isinstance(dim, int):
        return dim
    expression = dim.node.expr
    return int(expression) if expression.is_Integer else expression


def plain(shape: Sequence[Dim]) -> Shape:
    """``shape`` with constant symbolic dimensions converted to ``int``."""
    return tuple(
        dim if isinstance(dim, int) or not dim.node.expr.is_Integer else int(dim.node.expr) for dim in shape
    )


def static_dim(dim: Dim) -> int | None:
    """A dimension as an ``int``; None if it is symbolic."""
    key = dim_key(dim)
    return key if isinstance(key, int) else None


def same_dim(a: Dim, b: Dim) -> bool:
    """True if two dimensions are known to be equal (no guard is added)."""
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    return bool(dim_key(a) == dim_key(b)) or _follows(a == b)


def _follows(condition: Any) -> bool:
    """True if a condition on dimensions follows from the assumptions made while the graph was traced."""
    if isinstance(condition, bool):
        return condition
    return bool(condition.node.statically_known_true("", 0))


def is_negative(dim: Dim) -> bool:
    """True if an index is known to be negative."""
    return _follows(dim < 0)


def at_most(dim: Dim, limit: Dim) -> Dim:
    """The smaller of two dimensions, whichever it is at run time."""
    if _follows(dim <= limit):
        return dim
    if _follows(limit <= dim):
        return limit
    return limit.__sym_min__(dim) if isinstance(dim, int) else dim.__sym_min__(limit)


def at_least(dim: Dim, limit: Dim) -> Dim:
    """The larger of two dimensions, whichever it is at run time."""
    if _follows(limit <= dim):
        return dim
    if _follows(dim <= limit):
        return limit
    return limit.__sym_max__(dim) if isinstance(dim, int) else dim.__sym_max__(limit)


def same_shape(a: Sequence[Dim], b: Sequence[Dim]) -> bool:
    return len(a) == len(b) and all(map(same_dim, a, b))


def assume_same(a: Dim, b: Dim) -> bool:
    """True if two dimensions are known to be equal, or are equal in the example, which adds a guard.

    This is for dimensions that eager PyTorch's kernel compares although its metadata function does not.
    Raises :class:`UnsupportedShape` if the guard fixes a symbol to a number.
    """
    if same_dim(a, b):
        return True
    if isinstance(a, int) and isinstance(b, int):
        return False
    text = f"{a} == {b}"
    try:
        holds = bool(a == b)
    except RuntimeError:  # sizes that depend on values
        return False
    if holds and static_dim(a) is not None and static_dim(b) is not None:
        raise UnsupportedShape(
            f"this call needs {text}",
            hint="mark this dimension static, or export the program once per size",
        )
    return holds


def assume_same_shape(a: Sequence[Dim], b: Sequence[Dim]) -> bool:
    """True if :func:`assume_same` holds for all dimensions of two shapes."""
    return same_shape(a, b) or (len(a) == len(b) and all(map(assume_same, a, b)))


def product(dims: Sequence[Dim]) -> Dim:
    result: Dim = 1
    for dim in dims:
        result = result * dim
    return result
