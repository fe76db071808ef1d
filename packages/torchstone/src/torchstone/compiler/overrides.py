"""PyTorch's overrides of composite-implicit operators, made once and put in place again.

Around each export and each expansion PyTorch overrides several hundred operators, key by key,
and looks up every such operator once per namespace: longer than it traces a small program.
What it makes of an operator follows from the operator's kernels and the override alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch
from torch._export import utils
from torch._ops import OpOverload, _OpNamespace
from torch._subclasses.fake_impls import op_implementations_dict
from torch.export import exported_program

Expansion = Callable[..., Any]
_Tables = tuple[dict[Any, Any], Any]
"""An operator's kernels in Python by dispatch key, and its rule for fake tensors (None if it has none)."""

_theirs = exported_program._override_composite_implicit_decomp


@dataclass(frozen=True)
class _Override:
    """What PyTorch makes of an operator with the tables ``before``."""

    before: _Tables
    after: _Tables


_MADE: dict[tuple[OpOverload, Expansion], _Override] = {}


@contextmanager
def overriding(expansions: Mapping[OpOverload, Expansion]) -> Iterator[None]:
    """Inside, each operator has that expansion; one that returns ``NotImplemented`` keeps it whole.

    The same as PyTorch's own ``_override_composite_implicit_decomp``.
    """
    overrides = {operator: _override(operator, expansion) for operator, expansion in expansions.items()}
    for operator, override in overrides.items():
        _set(operator, override.after)
    try:
        yield
    finally:
        for operator, override in overrides.items():
            _set(operator, (override.before[0], None))


def _override(operator: OpOverload, expansion: Expansion) -> _Override:
    before = _tables(operator)
    known = _MADE.get((operator, expansion))
    if known is None or known.before != before:
        with _theirs({operator: expansion}):
            known = _MADE[operator, expansion] = _Override(before, _tables(operator))
        _set(operator, before)  # PyTorch forgets the rule
    return known


def _tables(operator: OpOverload) -> _Tables:
    return dict(operator.py_kernels), op_implementations_dict.get(operator)


def _set(operator: OpOverload, tables: _Tables) -> None:
    kernels, rule = tables
    operator.py_kernels.clear()
    operator.py_kernels.update(kernels)
    operator._dispatch_cache.clear()
    if rule is None:
        op_implementations_dict.pop(operator, None)
    else:
        op_implementations_dict[operator] = rule


def composites() -> set[OpOverload]:
    """Every composite-implicit operator that can be kept whole, custom ones included.

    The same as PyTorch's own ``_collect_all_valid_cia_ops``, which asks the dispatcher for each namespace.
    """
    utils._materialize_cpp_cia_ops()
    found: set[Any] = set(utils._collect_all_valid_cia_ops_for_aten_namespace())
    spaces = [getattr(torch.ops, name) for name in torch.ops._dir if name != "aten"]
    for space in (one for one in spaces if isinstance(one, _OpNamespace)):
        overloads = (overload for name in space for overload in _overloads(space, name))
        found |= {overload for overload in overloads if utils._is_preservable_cia_op(overload)}
    return found


def _overloads(space: _OpNamespace, name: str) -> list[OpOverload]:
    packet: Any = getattr(space, name)
    overloads: list[OpOverload] = packet.op_overloads()
    return overloads


@contextmanager
def quick_overrides() -> Iterator[None]:
    """Inside, ``run_decompositions`` uses :func:`composites` and :func:`overriding`."""
    with (
        patch.object(exported_program, "_override_composite_implicit_decomp", overriding),
        patch.object(exported_program, "_collect_all_valid_cia_ops", composites),
    ):
        yield
