"""Refuses changes of Python values in lists, dicts, objects and variables, which a program cannot repeat.

Plain attributes of modules (:mod:`.attributes`) and what an optimizer's own step changes in its groups
(:mod:`.settings`) are handled elsewhere: programs change these with each step.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import CellType, FunctionType, NoneType
from typing import Any

import torch

from ..errors import CaptureError
from .numbers import Number
from .reach import reachable
from .recipe import Recipe

_PLAIN = frozenset({bool, int, float, str, NoneType})
_DICTS = frozenset({dict, OrderedDict, defaultdict, Counter})
"""The dict classes that are checked: others may return a different value each time a key is looked up."""
_ABSENT = object()

Values = dict[Any, Any]


@dataclass(frozen=True)
class _Kept:
    """The values of a container, or of variables, before the trace.

    ``now`` reads the present values, ``restore`` puts old ones back, and ``label`` names one in errors.
    """

    before: Values
    now: Callable[[], Values]
    restore: Callable[[Values], None]
    label: Callable[[Any], str] | None
    """None if changes are allowed."""

    def check(self) -> None:
        now = self.now()
        for key in {**self.before, **now} if self.label else ():
            was, value = self.before.get(key, _ABSENT), now.get(key, _ABSENT)
            if was is not value and _would_be_lost(was, value):
                assert self.label is not None
                raise CaptureError(
                    f"the step changes {self.label(key)}{_from(was, value)} while it is traced, and its "
                    "program would not change it again",
                    hint="do it outside of the step, or keep it in a buffer of the model (register_buffer) "
                    "or in a number among its attributes",
                )

    def put_back(self) -> None:
        now = self.now()
        if now.keys() != self.before.keys() or any(now[key] is not was for key, was in self.before.items()):
            self.restore(self.before)


@contextmanager
def refusing_changes(recipe: Recipe) -> Iterator[None]:
    """Raise CaptureError if the block has changed a Python value that code of a step can reach.

    If this or any other error is raised, lists, dicts, objects and modules get their old values back.
    """
    kept = list(_all_kept(recipe))
    try:
        yield
        for one in kept:
            one.check()
    except BaseException:
        for one in kept:
            one.put_back()
        raise


def _all_kept(recipe: Recipe) -> Iterator[_Kept]:
    for name, value in reachable(recipe):
        if isinstance(value, torch.nn.Module):
            for module in value.modules():
                yield _of_dict(vars(module), None)
        elif type(value) is list:
            yield _of_list(value, name)
        elif type(value) in _DICTS:
            yield _of_dict(value, name)
        elif isinstance(value, FunctionType):
            yield from _of_function(value)
        elif not isinstance(value, type) and isinstance(getattr(value, "__dict__", None), dict):
            yield _of_dict(vars(value), name, attributes=True)
    for place, group in enumerate(recipe.optimizer.param_groups):
        yield _of_dict(group, f"optimizer.param_groups[{place}]")
    for place, state in enumerate(recipe.optimizer.state.values()):
        if isinstance(state, dict):
            yield _of_dict(state, f"optimizer.state (parameter {place})")


def _of_dict(values: Values, name: str | None, *, attributes: bool = False) -> _Kept:
    def restore(before: Values) -> None:
        for key in [*values]:
            if key not in before:
                del values[key]
        values.update(before)

    def label(key: Any) -> str:
        return f"{name}.{key}" if attributes else f"{name}[{key!r}]"

    return _Kept(dict(values), lambda: dict(values), restore, None if name is None else label)


def _of_list(values: list[Any], name: str) -> _Kept:
    def restore(before: Values) -> None:
        values[:] = before.values()

    return _Kept(
        dict(enumerate(values)), lambda: dict(enumerate(values)), restore, lambda place: f"{name}[{place}]"
    )


def _of_function(function: FunctionType) -> Iterator[_Kept]:
    """Yield the variables of enclosing functions and the plain globals that the function names."""
    code, own = function.__code__, function.__globals__
    cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))

    def of_cells() -> Values:
        return {name: one.cell_contents for name, one in cells.items() if _is_filled(one)}

    def of_globals() -> Values:
        return {name: own[name] for name in code.co_names if type(own.get(name, code)) in _PLAIN}

    def restore_cells(before: Values) -> None:
        for name, value in before.items():
            cells[name].cell_contents = value

    if cells:
        yield _Kept(of_cells(), of_cells, restore_cells, str)
    if found := of_globals():
        yield _Kept(found, of_globals, own.update, str)


def _is_filled(cell: CellType) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


def _would_be_lost(was: Any, value: Any) -> bool:
    """Whether a program would not repeat this change of a plain value.

    A new entry counts only if it is a number: any other is taken for an entry of a cache.
    """
    if value is _ABSENT:
        return type(was) in _PLAIN
    if isinstance(value, Number):
        return True
    if type(value) not in _PLAIN:
        return False
    if was is _ABSENT:
        return type(value) in (int, float)
    return type(was) is not type(value) or bool(was != value)


def _from(was: Any, value: Any) -> str:
    if isinstance(value, Number):
        value = "another number" if value.node.expression is None else repr(value.node.expression.value)
    elif value is not _ABSENT:
        value = repr(value)
    return f" from {was!r} to {value}" if type(was) in _PLAIN and value is not _ABSENT else ""
