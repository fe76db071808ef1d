"""Refuses changes of Python values in containers, objects and variables, which a program cannot repeat.

These are numbers and words, tensors of the step, and the position of an iterator.

Plain attributes of modules (:mod:`.attributes`) and what an optimizer's own step changes in its groups
(:mod:`.settings`) are handled elsewhere: programs change these with each step.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import CellType, FunctionType, NoneType
from typing import Any

import torch

from ..errors import CaptureError
from ..torch_internals import pytree
from ..torch_internals.fake import FakeTensor
from .batch import reaches
from .iterators import StandIns
from .numbers import Number
from .reach import names_in, reachable
from .recipe import Recipe
from .tracing import Numbers

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
    ordered: bool = False
    """Whether it is a sequence: what is removed from it was removed by its place."""
    keyed: bool = True
    """Whether new elements may be those of a cache: a step that adds one to a list adds another each time."""

    def check(self, trace: Numbers | None) -> None:
        now = self.now()
        for key in {**self.before, **now} if self.label else ():
            was, value = self.before.get(key, _ABSENT), now.get(key, _ABSENT)
            if was is value:
                continue
            assert self.label is not None
            if not isinstance(value, Number) and self._keeps_tensor(value, was, trace):
                raise CaptureError(
                    f"the step keeps one of its tensors in {self.label(key)}, and its program would not do "
                    "that again",
                    hint="return it from loss_fn beside the loss, or remove it again before loss_fn returns",
                )
            if _would_be_lost(was, value) or (self.ordered and _is_moved(was, value)):
                raise CaptureError(
                    f"the step changes {self.label(key)}{_from(was, value)} while it is traced, and its "
                    "program would not change it again",
                    hint="do it outside of the step, or keep it in a buffer of the model (register_buffer) "
                    "or in a number among its attributes",
                )

    def _keeps_tensor(self, value: Any, was: Any, trace: Numbers | None) -> bool:
        """Whether ``value`` has tensors of the trace that are not constants in a cache."""
        if reaches(value, (FakeTensor,)):
            return True
        if trace is None:
            return False
        tensors = [one for one in pytree.tree_leaves(value) if isinstance(one, torch.Tensor)]
        if not self.keyed and was is _ABSENT:
            return any(map(trace.origins.made_here, tensors))
        return any(map(trace.varies, tensors))

    def hide(self, stand_ins: StandIns) -> None:
        """Put stand-ins in place of iterators, and of tuples and partial functions that have some."""
        shown = {key: stand_ins.of(value, self._name(key)) for key, value in self.before.items()}
        if any(shown[key] is not value for key, value in self.before.items()):
            self.restore(shown)

    def show(self, stand_ins: StandIns) -> None:
        """Undo :meth:`hide`, and keep all other changes."""
        now = self.now()
        real = {key: stand_ins.real(value) for key, value in now.items()}
        if any(real[key] is not value for key, value in now.items()):
            self.restore(real)

    def _name(self, key: Any) -> str:
        return str(key) if self.label is None else self.label(key)

    def put_back(self) -> None:
        now = self.now()
        if now.keys() != self.before.keys() or any(now[key] is not was for key, was in self.before.items()):
            self.restore(self.before)


@contextmanager
def refusing_changes(recipe: Recipe, trace: Numbers | None = None) -> Iterator[None]:
    """Raise CaptureError if the block has changed a Python value that code of a step can reach.

    If this or any other error is raised, containers, objects and modules get their old values back. Code in
    the block that advances an iterator raises :class:`Refused`. ``trace`` knows which real tensors the block
    made.
    """
    kept = list(_all_kept(recipe))
    stand_ins = StandIns()
    try:
        for one in kept:
            one.hide(stand_ins)
        yield
        for one in kept:
            one.show(stand_ins)
        for one in kept:
            one.check(trace)
    except BaseException:
        for one in kept:
            one.put_back()
        raise


def _all_kept(recipe: Recipe) -> Iterator[_Kept]:
    own = {id(module) for root in recipe.modules() for module in root.modules()}
    for name, value in reachable(recipe):
        if isinstance(value, torch.nn.Module):
            for path, module in value.named_modules():
                label = None if id(module) in own else f"{name}.{path}" if path else name
                yield _of_dict(vars(module), label, attributes=True)
        elif type(value) is list or type(value) is deque:
            yield _of_sequence(value, name)
        elif type(value) is set:
            yield _of_set(value, name)
        elif type(value) in _DICTS:
            yield _of_dict(value, name)
        elif isinstance(value, FunctionType):
            yield from _of_function(value)
        elif not isinstance(value, type) and isinstance(getattr(value, "__dict__", None), dict):
            yield _of_dict(vars(value), name, attributes=True)
    yield _of_dict(vars(recipe), None)
    for place, group in enumerate(recipe.optimizer.param_groups):
        yield _of_dict(group, f"optimizer.param_groups[{place}]")
    yield _of_dict(recipe.optimizer.state, "optimizer.state")
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


def _of_sequence(values: list[Any] | deque[Any], name: str) -> _Kept:
    def restore(before: Values) -> None:
        values.clear()
        values.extend(before.values())

    def now() -> Values:
        return dict(enumerate(values))

    return _Kept(now(), now, restore, lambda place: f"{name}[{place}]", ordered=True, keyed=False)


def _of_set(values: set[Any], name: str) -> _Kept:
    def restore(before: Values) -> None:
        values.clear()
        values.update(before.values())

    def now() -> Values:
        return {one: one for one in values}

    return _Kept(now(), now, restore, lambda one: f"the set {name}", keyed=False)


def _of_function(function: FunctionType) -> Iterator[_Kept]:
    """Yield the variables of enclosing functions, the globals that the function names, and its defaults."""
    code, own = function.__code__, function.__globals__
    names = [*dict.fromkeys(names_in(code))]
    cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))

    def of_cells() -> Values:
        return {name: one.cell_contents for name, one in cells.items() if _is_filled(one)}

    def of_globals() -> Values:
        return {name: own[name] for name in names if name in own}

    def restore_cells(before: Values) -> None:
        for name, value in before.items():
            cells[name].cell_contents = value

    def restore_globals(before: Values) -> None:
        for name in names:
            if name in own and name not in before:
                del own[name]
        own.update(before)

    def of_defaults() -> Values:
        return dict(enumerate(function.__defaults__ or ()))

    def restore_defaults(before: Values) -> None:
        function.__defaults__ = tuple(before.values())

    if cells:
        yield _Kept(of_cells(), of_cells, restore_cells, str)
    yield _Kept(of_globals(), of_globals, restore_globals, str)
    if function.__defaults__:
        yield _Kept(of_defaults(), of_defaults, restore_defaults, lambda _: f"a default of {code.co_name}")


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


def _is_moved(was: Any, value: Any) -> bool:
    """Whether an element was removed from a sequence, or a tensor is at the place of another one."""
    return was is not _ABSENT and (value is _ABSENT or isinstance(was, torch.Tensor))
