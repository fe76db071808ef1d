"""Caches PyTorch's overrides of composite-implicit operators, so that each is made only once.

For each export and each expansion, PyTorch overrides several hundred operators, key by key,
and looks up each of them once per namespace. This takes longer than tracing a small program.
The tables of an overridden operator depend only on its kernels and on the override.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ..torch_internals import export
from ..torch_internals.dispatch import exchanged_tables, kernel_table, python_kernels
from ..torch_internals.fake import fake_rules, placed_rule
from ..torch_internals.operators import OpOverload
from ..torch_internals.patches import Patch, patched, tracing

Expansion = Callable[..., Any]


@dataclass(frozen=True)
class _Override:
    """The tables that give an operator an expansion while its own tables are ``before``."""

    before: tuple[Any, ...]
    kernels: Mapping[Any, Expansion]
    rule: Expansion | None


_MADE: dict[tuple[OpOverload, Expansion], _Override] = {}


@contextmanager
def overriding(expansions: Mapping[OpOverload, Expansion]) -> Iterator[None]:
    """Inside, each operator has the given expansion; if that returns ``NotImplemented``, it is not expanded.

    Does what PyTorch's ``_override_composite_implicit_decomp`` does, but in this thread only.
    """
    with tracing():
        overrides = {operator: _override(operator, expansion) for operator, expansion in expansions.items()}
        rules = {operator: one.rule for operator, one in overrides.items() if one.rule is not None}
        tables = {operator: one.kernels for operator, one in overrides.items()}
        with patched(Patch(fake_rules(), rules)), exchanged_tables(tables):
            yield


def _override(operator: OpOverload, expansion: Expansion) -> _Override:
    present, given = python_kernels(operator), fake_rules().get(operator)
    known = _MADE.get((operator, expansion))
    if known is None or known.before != (present, given):
        after, rule = export.overridden_tables(operator, expansion)
        changed = {key: one for key, one in after.items() if present.get(key) is not one}
        known = _MADE[operator, expansion] = _Override(
            (dict(present), given),
            kernel_table(operator, changed),
            None if rule is None else placed_rule(operator, rule),
        )
    return known


@contextmanager
def quick_overrides() -> Iterator[None]:
    """Inside, ``run_decompositions`` uses :func:`overriding`, and finds composite operators quickly."""
    with tracing(), patched(export.quick_overrides(overriding)):
        yield
