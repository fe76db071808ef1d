"""Comparing nested outputs: two trees are walked, and ``comparator`` judges each pair of arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .comparator import compare
from .comparison import Comparison, Mode, TreeComparison
from .tolerance import Tolerance


def compare_trees(
    actual: Any,
    expected: Any,
    tolerance: Tolerance | Callable[[np.dtype[Any]], Tolerance] | None = None,
    *,
    reference: Any = None,
    control: Any = None,
    mode: Mode = "allclose",
) -> TreeComparison:
    """Judge nested outputs leaf by leaf with :func:`compare`.

    Trees are dicts (in any order), and lists or tuples (which are interchangeable) of arrays, NumPy scalars,
    floats and complex numbers. Other leaves (None, ints, strings) must have the same type and be equal.
    ``tolerance`` may be a function of a leaf's dtype, such as ``partial(table.lookup, operator="exp")``.
    ``reference`` and ``control`` have the structure of ``expected``; None stands for a subtree that has none.

    Raises what :func:`compare` raises, and ``ValueError`` for a reference or control whose structure differs
    from that of ``expected``.
    """
    leaves: list[tuple[str, Comparison]] = []
    differences: list[str] = []

    def visit(path: str, found: Any, wanted: Any, truth: Any, trusted: Any) -> None:
        if _tree_type(found) != _tree_type(wanted):
            differences.append(f"output{path}: {_tree_type(found)}, expected {_tree_type(wanted)}")
        elif isinstance(wanted, Mapping | list | tuple):
            for key in _common_keys(path, found, wanted, differences):
                step = f"{path}[{key!r}]"
                below = (_child(truth, key, "reference", step), _child(trusted, key, "control", step))
                visit(step, found[key], wanted[key], *below)
        elif _tree_type(wanted) == "array":
            limit = tolerance(np.asarray(wanted).dtype) if callable(tolerance) else tolerance
            leaf = compare(found, wanted, limit, reference=truth, control=trusted, mode=mode)
            leaves.append((path, leaf))
        elif found != wanted:
            differences.append(f"output{path}: {found!r}, expected {wanted!r}")

    visit("", actual, expected, reference, control)
    return TreeComparison(tuple(leaves), tuple(differences))


def _tree_type(value: Any) -> str:
    if isinstance(value, np.ndarray | np.generic | float | complex):
        return "array"
    if isinstance(value, Mapping):
        return "dict"
    return "sequence" if isinstance(value, list | tuple) else type(value).__name__


def _common_keys(path: str, found: Any, wanted: Any, differences: list[str]) -> list[Any]:
    """Return the keys or indices that both containers have; add the others to ``differences``."""
    if isinstance(wanted, Mapping):
        mine, theirs = list(found), list(wanted)
    else:
        mine, theirs = list(range(len(found))), list(range(len(wanted)))
    differences.extend(f"output{path}[{key!r}]: missing" for key in theirs if key not in mine)
    differences.extend(f"output{path}[{key!r}]: not expected" for key in mine if key not in theirs)
    return [key for key in theirs if key in mine]


def _child(tree: Any, key: Any, name: str, path: str) -> Any:
    if tree is None:
        return None
    try:
        return tree[key]
    except (IndexError, KeyError, TypeError):
        raise ValueError(f"the {name} has no output{path}, which expected has") from None
