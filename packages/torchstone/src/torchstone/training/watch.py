"""What code of a step reads in Python: modules and their hooks, functions, and what these refer to.

A program stands for code that was traced once, so it is valid as long as all of this stays the same.
Everything that can be reached from the model, the loss and the optimizer is collected once. Before each
call, a single pass in C compares identities. Tensors of the state are handled in :mod:`.sharing`, and numbers
of the optimizer in :mod:`.numbers`.
"""

from __future__ import annotations

import sys
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from functools import partial
from itertools import chain, repeat
from operator import attrgetter, is_
from types import CellType, FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler

from ..compiler.graphs import is_users_file
from ..torch_internals.tensors import members
from ..torch_internals.training import (
    HOOKS,
    NOT_FOR_FORWARD,
    NOT_FOR_STEPS,
    hooks_after_accumulation,
    hooks_of_all,
    hooks_of_tensor,
    module_hooks,
    own_step,
)
from .identity import Form, Same, is_value, same_value
from .reach import is_distribution, is_installed, is_users_module, is_users_type, names_in
from .recipe import Recipe
from .shown_numbers import OF_SCHEDULERS

_MOST = 20_000
"""The most values that are followed, the nearest first."""
_LARGE = 1000
"""If a list, a dict or another container has more elements than this, only their number is compared."""
_CONTAINERS = (list, tuple, dict, set, frozenset, deque)
_CALLED = frozenset({"forward", "__call__", "__getattr__", "step", "backward", "setup_context"})
"""Names that are looked up in classes even if the user's code does not mention them."""
_BASES = frozenset(nn.Module.__mro__) | frozenset(torch.optim.Optimizer.__mro__)
_FOLLOWED = (nn.Module, torch.optim.Optimizer)
_MISSING, _END = object(), object()

Place = tuple[int, Any]
"""The identity of an owner, and the name or position of a value in it."""


class Watch:
    """What a step's code reads, as it is now. A program depends on its ``form``.

    ``ignored`` are the places that the code itself changes, with their owners.
    """

    def __init__(self, recipe: Recipe, ignored: Mapping[Place, Any]) -> None:
        self._walk = _Walk(recipe, ignored)
        self._sources = self._walk.sources
        self._expected = self._sources.values()
        self.form = Form(tuple(self._walk.form))
        self.tensors = self._walk.tensors
        """The tensors that code may read, apart from those of modules of the step."""

    def unchanged(self) -> bool:
        """Whether everything is as it was when this was made."""
        if self._sources.match(self._expected):
            return True
        now, before = self._sources.values(), self._expected
        if len(now) != len(before) or not self._sources.match(now):
            return False
        if not all(one is other or same_value(one, other) for one, other in zip(now, before, strict=True)):
            return False
        self._expected = now  # other objects with the same values
        return True

    def changes(self, later: Watch) -> dict[Place, Any]:
        """Return the places that have other values in ``later``, with their owners."""
        before, after = self._walk.tokens, later._walk.tokens
        owners = {place: one for place, one in self._walk.owners.items() if place in later._walk.owners}
        changed = {place for place in before.keys() | after.keys() if before.get(place) != after.get(place)}
        return {place: owners[place[0]] for place in changed if place[0] in owners}


class _Sources:
    """The places that values are read from."""

    def __init__(self) -> None:
        self.views: list[Iterable[Any]] = []
        self.dicts: list[Any] = []
        """Dicts whose last key is compared: a new name is always the last one."""
        self.empty: list[Sized] = []
        self.large: list[Sized] = []
        self.objects: list[Any] = []
        """Objects whose classes are compared."""
        self.owners: list[dict[str, Any]] = []
        self.names: list[str] = []
        self.cells: list[CellType] = []
        self.functions: list[FunctionType] = []
        self.parameters: list[torch.Tensor] = []
        self.sizes: list[int] = []

    def now(self) -> Iterator[Any]:
        return chain(
            chain.from_iterable(self.views),
            map(next, map(reversed, self.dicts)),
            map(type, self.objects),
            map(dict.get, self.owners, self.names, repeat(_MISSING)),
            map(_CONTENTS, self.cells),
            map(_CODE, self.functions),
            map(_DEFAULTS, self.functions),
            map(_KEYWORD_DEFAULTS, self.functions),
            map(hooks_of_tensor, self.parameters),
            map(hooks_after_accumulation, self.parameters),
            (nn.Module.__call__, _END),
        )

    def values(self) -> list[Any]:
        try:
            return list(self.now())
        except (ValueError, RuntimeError):
            return [_END]

    def match(self, expected: list[Any]) -> bool:
        try:
            return (
                not any(self.empty)
                and all(map(is_, self.now(), expected))
                and list(map(len, self.large)) == self.sizes
            )
        except (ValueError, RuntimeError):  # a variable was deleted, or another thread writes
            return False


_CONTENTS, _CODE = attrgetter("cell_contents"), attrgetter("__code__")
_DEFAULTS, _KEYWORD_DEFAULTS = attrgetter("__defaults__"), attrgetter("__kwdefaults__")


class _Walk:
    """Follows what code can reach, and notes what to compare before each call and its form now."""

    def __init__(self, recipe: Recipe, ignored: Mapping[Place, Any]) -> None:
        self.sources = _Sources()
        self.tensors: list[torch.Tensor] = []
        self.form: list[Any] = []
        self.tokens: dict[Place, Any] = {}
        self.owners: dict[int, Any] = {}
        self._ignored = ignored
        self._seen: dict[int, int] = {}
        """The order in which values were first met, by their identities."""
        self._kept: list[Any] = []
        self._classes: dict[int, type] = {}
        self._numbers: dict[int, int] = {}
        """Numbers of the tensors of modules and of the optimizer's groups, by identity: steps write these."""
        self._names: dict[str, None] = {}
        self._named: list[tuple[Any, Callable[[str], bool] | None, bool, set[str]]] = []
        """Dicts that code may read by name, what else may have a name, whether to follow, and names done."""
        self._pending: deque[Any] = deque()
        self._start(recipe)
        while self._pending or self._look_up_names():
            value = self._pending.popleft()
            if len(self._kept) < _MOST or isinstance(value, nn.Module):
                self._visit(value)
        self.sources.sizes = list(map(len, self.sources.large))

    def _start(self, recipe: Recipe) -> None:
        roots = (recipe.model, recipe.loss_fn, recipe.average)
        optimizer = recipe.optimizer
        for one in (optimizer, optimizer.param_groups, optimizer.state):
            self._kept_elsewhere(one)
        for group in (*optimizer.param_groups, *optimizer.state.values()):
            self._kept_elsewhere(group)
        for root in roots:
            for module in root.modules() if isinstance(root, nn.Module) else ():
                for tensor in chain.from_iterable(own.values() for own in members(module)):
                    if tensor is not None:
                        self._numbers.setdefault(id(tensor), len(self._numbers))
                self.sources.parameters += [p for p in members(module)[0].values() if p is not None]
        for group in recipe.optimizer.param_groups:
            for value in group.values():
                if isinstance(value, torch.Tensor):
                    self._numbers.setdefault(id(value), len(self._numbers))
        for tensor in self.sources.parameters:
            for hooks in (hooks_of_tensor(tensor), hooks_after_accumulation(tensor)):
                self._hooks([] if hooks is None else [hooks])
        for place, root in enumerate(roots):
            self._note(recipe, place, root)
        self._hooks(hooks_of_all())
        self._note(nn.Module, "__call__", nn.Module.__call__)
        own = vars(recipe.optimizer)
        self._watch_dict(own)
        for name, value in own.items():
            if name.endswith("_hooks") and name not in NOT_FOR_STEPS:
                self._hooks([value])
            elif name not in NOT_FOR_STEPS:
                self._note(own, name, value)
        self._note(own, "step", own_step(recipe.optimizer))
        self._class(type(recipe.optimizer))

    def _note(self, owner: Any, name: Any, value: Any, *, follow: bool = True) -> None:
        """Record that ``owner`` has ``value`` under ``name``."""
        place = (id(owner), name)
        if place in self._ignored:
            return
        self.owners[id(owner)] = owner
        token = self.tokens[place] = self._token(value)
        met = self._meet(value) if isinstance(value, _CONTAINERS) else None
        self.form.append((name, token, met))
        if follow:
            self._follow(value)

    def _token(self, value: Any) -> Any:
        if is_value(value):
            return type(value), repr(value)
        if isinstance(value, torch.Tensor):
            return self._numbers[id(value)] if id(value) in self._numbers else Same(value)
        return (type(value), len(value)) if isinstance(value, _CONTAINERS) else Same(value)

    def _meet(self, value: Any) -> int:
        if id(value) not in self._seen:
            self._seen[id(value)] = len(self._seen)
            self._kept.append(value)
            if value is not _MISSING:
                self._pending.append(value)
        return self._seen[id(value)]

    def _kept_elsewhere(self, value: Any) -> None:
        """Do not follow what ``value`` contains: it is among the arguments, or in another part of the key."""
        self._meet(value)
        self._pending.clear()

    def _follow(self, value: Any) -> None:
        if not is_value(value):
            self._meet(value)

    def _visit(self, value: Any) -> None:
        match value:
            case nn.Module():
                self._module(value)
            case torch.Tensor():
                if id(value) not in self._numbers and not value.is_inference():
                    self.tensors.append(value)
            case FunctionType():
                self._function(value)
            case MethodType():
                self._parts(value, "__func__", "__self__")
            case partial():
                self._parts(value, "func", "args", "keywords")
            case property():
                self._parts(value, "fget", "fset")
            case staticmethod() | classmethod():
                self._parts(value, "__func__")
            case dict() | list() | tuple() | set() | frozenset() | deque():
                self._container(value)
            case type():
                if is_users_type(value) and not _is_installed_type(value):
                    self._class(value)
            case ModuleType():
                own = is_users_module(value) and not is_installed(value.__file__ or "")
                self._named.append((vars(value), None, own, set()))
            case _ if is_distribution(value):  # what reads its attributes is PyTorch's own code
                self._object(value)
                self._watch_dict(vars(value))
                for name, one in vars(value).items():
                    self._note(vars(value), name, one)
            case _ if is_users_type(type(value)) or isinstance(value, LRScheduler):
                self._object(value)
                if isinstance(getattr(value, "__dict__", None), dict):
                    done = set(OF_SCHEDULERS) if isinstance(value, LRScheduler) else set()
                    self._named.append((vars(value), partial(hasattr, type(value)), True, done))
                if not _is_installed_type(type(value)):
                    self._class(type(value))

    def _parts(self, value: Any, *names: str) -> None:
        for name in names:
            self._note(value, name, getattr(value, name))

    def _watch_dict(self, own: Any) -> None:
        if not own:
            self.sources.empty.append(own)
            return
        plain = type(own) in (dict, OrderedDict, defaultdict, MappingProxyType)
        self.sources.views.append(own.values() if plain else dict.values(own))
        self.sources.dicts.append(own)

    def _module(self, module: nn.Module) -> None:
        own = vars(module)
        self._watch_dict(own)
        self._object(module)
        self._hooks(module_hooks(module))
        for name, value in own.items():
            if name not in NOT_FOR_FORWARD and name not in HOOKS:
                self._note(own, name, value)
        self._class(type(module))

    def _object(self, value: Any) -> None:
        self.sources.objects.append(value)
        self.form.append(Same(type(value)))

    def _hooks(self, hooks: Sequence[dict[int, Any]]) -> None:
        """Record dicts of hooks. Their keys become numbers that only say which entries belong together."""
        keys: dict[int, int] = {}
        for one in hooks:
            self._watch_dict(one)
            for key, hook in one.items():
                self._note(one, ("hook", keys.setdefault(key, len(keys))), hook)
        self.form.append(tuple(len(one) for one in hooks if one))

    def _class(self, kind: type) -> None:
        """Record ``kind`` and its base classes, except those that all modules or optimizers have."""
        for one in kind.__mro__:
            own_code = is_users_type(one) and not _is_installed_type(one)
            if one in _BASES or id(one) in self._classes or not (own_code or issubclass(one, _FOLLOWED)):
                continue
            self._classes[id(one)] = one
            own = vars(one)
            self._watch_dict(own)
            for name, value in own.items():
                if isinstance(value, FunctionType) or name in _CALLED or not name.startswith("__"):
                    self._note(one, name, value, follow=name in _CALLED)
            self._named.append((own, None, True, set()))

    def _container(self, value: Any) -> None:
        if len(value) > _LARGE:
            self.sources.large.append(value)
        elif isinstance(value, dict):
            self._watch_dict(value)
            for place, (key, one) in enumerate(value.items()):
                self._note(value, key if is_value(key) else place, one)
        else:
            if not isinstance(value, (tuple, frozenset)):
                (self.sources.views if value else self.sources.empty).append(value)
            for place, one in enumerate(value):
                self._note(value, place, one)

    def _function(self, function: FunctionType) -> None:
        if hasattr(function, "__wrapped__"):
            self._parts(function, "__wrapped__")
        code = function.__code__
        if not is_users_file(code.co_filename):
            return
        self.sources.functions.append(function)
        self._parts(function, "__code__", "__defaults__", "__kwdefaults__")
        if vars(function):
            self._named.append((vars(function), None, True, set()))
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            try:
                value = cell.cell_contents
            except ValueError:  # not assigned yet
                continue
            self.sources.cells.append(cell)
            self._note(cell, name, value)
        own, theirs = function.__globals__, is_installed(code.co_filename)
        for name in dict.fromkeys(names_in(code)):
            self._names.setdefault(name)
            self._read(own, name, follow=not theirs)

    def _read(self, own: dict[str, Any], name: str, *, follow: bool) -> None:
        """Record that code reads ``name`` in a dict that has other entries too."""
        if (id(own), name) in self.tokens or (id(own), name) in self._ignored:
            return
        self.sources.owners.append(own)
        self.sources.names.append(name)
        self._note(own, name, own.get(name, _MISSING), follow=follow and name in own)

    def _look_up_names(self) -> bool:
        """Record the attributes that code may read, by their names; return whether there is more to visit."""
        for own, others, follow, done in self._named:
            for name in self._names:
                if name in done:
                    continue
                done.add(name)
                if isinstance(own, MappingProxyType):
                    if name in own:
                        self._follow(own[name])
                elif name in own or (others is not None and others(name)):
                    self._read(own, name, follow=follow)
        return bool(self._pending)


def _is_installed_type(kind: type) -> bool:
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return is_installed(file or "")
