"""The registry of capture rules, how they come into force, and declared bounds."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar

import torch
from torch.overrides import TorchFunctionMode

from ...errors import CaptureError
from ...torch_internals import pytree
from ...torch_internals.operators import OpOverload, OpOverloadPacket
from ...torch_internals.patches import functions, patched, tracing
from ...torch_internals.probing import Internal
from ...torch_internals.tensors import submodules, version_of
from ..operators import registry
from ..operators.declaring import overloads
from ..operators.implementations import implementation_of

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(repr=False)
class Rules:
    """Rules by what they replace: functions, classes of modules, and attributes of classes and modules.

    ``dynamo`` has those functions that ``torch.compile`` replaces too.
    """

    calls: dict[Any, Callable[..., Any]] = field(default_factory=dict)
    modules: dict[type[torch.nn.Module], Callable[[Any], Callable[..., Any]]] = field(default_factory=dict)
    attributes: dict[tuple[Any, str], Callable[..., Any]] = field(default_factory=dict)
    dynamo: dict[Callable[..., Any], Callable[..., Any]] = field(default_factory=dict)

    def __repr__(self) -> str:  # short: it is a default argument, which help() shows
        return f"<{len(self.calls) + len(self.modules) + len(self.attributes)} capture rules>"


RULES = Rules()


def capture_rule(
    *targets: Any, of: Iterable[Any] = (), in_dynamo: bool = False, into: Rules = RULES
) -> Callable[[Function], Function]:
    """Register a function to be called instead of ``targets`` while a model is captured.

    A target is one of these; a later rule for the same target replaces the earlier one:

    - a function or method that PyTorch's ``__torch_function__`` protocol reaches
      (``torch.*``, ``torch.nn.functional.*``, ``torch.ops.*``, methods of
      ``torch.Tensor``): the rule gets its arguments. Where it returns
      ``NotImplemented``, the original is called.
      So it is where the arguments do not fit the rule's signature. A custom operator with a
      rule is not traced through: a rule that always returns ``NotImplemented`` keeps it whole.
    - a class of modules: the rule gets an instance, and returns what is called in its place.
    - ``(owner, "name")``, an attribute that is looked up when it is called: the
      rule stands there meanwhile, in this thread.

    A rule is noted in the records of ATen's operators of the target's name, and of those that it is
    a rule ``of``, because it calls them. ``in_dynamo`` is for functions that look at values: where
    ``torch.compile`` would end a graph, Dynamo traces the rule.
    """

    def register(function: Function) -> Function:
        found = (target.find() if isinstance(target, Internal) else target for target in targets)
        for target in (one for one in found if one is not None):
            for operator in overloads(*of, *_namesakes(target)) if into is RULES else ():
                registry.add_rule(operator, target, function)
            if in_dynamo:
                into.dynamo[target] = function
            if isinstance(target, tuple):
                into.attributes[target] = function
            elif isinstance(target, type) and issubclass(target, torch.nn.Module):
                into.modules[target] = function
            else:
                into.calls[target] = function
        return function

    return register


def _namesakes(target: Any) -> list[Any]:
    """What PyTorch calls for ``target``: itself if it is an operator, else ATen's operator of its name."""
    if isinstance(target, (OpOverload, OpOverloadPacket)):
        return [target]
    name = getattr(target, "__name__", "")
    return (
        [getattr(torch.ops.aten, name)] if inspect.isroutine(target) and hasattr(torch.ops.aten, name) else []
    )


class StandIn:
    """What a rule returns where PyTorch returns a tensor that no program can hold.

    Its methods are those of the tensor, as far as there are rules; ``kind`` says in
    error messages what it is. A model that returns one returns its dense parts.
    """

    kind = "tensor"

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        raise CaptureError(
            f"{getattr(func, '__name__', func)} has no capture rule for a {cls.kind} tensor",
            hint="make it dense before, or register a rule with torchstone.capture_rule",
        )

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"no capture rule gives a {self.kind} tensor the attribute {name!r}")


class _Calls(TorchFunctionMode):
    """Calls a rule instead of the function that it replaces."""

    def __init__(self, rules: Rules) -> None:
        super().__init__()
        self._rules = rules.calls

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        rule = self._rules.get(func)
        if rule is None:
            return _called(func, args, kwargs or {})
        if _takes(rule, args, kwargs or {}):
            result = rule(*args, **(kwargs or {}))
            if result is not NotImplemented:
                _note(getattr(func, "__name__", str(func)))
                return result
        return func(*args, **(kwargs or {}))


def _called(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """What ``func`` gives: by its Python implementation if it is an operator that is traced through.

    One whose implementation cannot be traced stays whole, and is reported as unsupported.
    """
    implementation = implementation_of(func)
    if implementation is not None:
        with suppress(Exception):
            return implementation(*args, **kwargs)
    return func(*args, **kwargs)


def _takes(rule: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether the arguments fit the rule: other forms of a function (``out=``) are PyTorch's own."""
    try:
        _signature(rule).bind(*args, **kwargs)
    except TypeError:
        return False
    return True


_signature = cache(inspect.signature)


@contextmanager
def replacing(rules: Rules = RULES) -> Iterator[None]:
    """Replaces calls and attributes inside the block; for modules see :func:`without_replaced_modules`."""
    copies: list[_Copy] = []
    with ExitStack() as stack:
        stack.callback(_COPIES.reset, _COPIES.set(copies))
        stack.enter_context(tracing())
        attributes = rules.attributes.items()
        stack.enter_context(
            patched(*(functions(owner, **{name: _noted(one, name)}) for (owner, name), one in attributes))
        )
        stack.enter_context(_Calls(rules))
        yield
    for copied in copies:
        copied.check()


@dataclass(frozen=True)
class _Copy:
    """A copy in place of a view: neither may be written into, since the other would not see it."""

    name: str
    versions: tuple[tuple[torch.Tensor, int], ...]

    def check(self) -> None:
        if any(version_of(tensor) != version for tensor, version in self.versions):
            raise CaptureError(
                f"{self.name} is a copy in a program, a view in PyTorch, and one of both is written into",
                hint="read with index_select, write with index_copy",
            )


_COPIES: ContextVar[list[_Copy] | None] = ContextVar("torchstone_copies", default=None)


def copy_of_view(name: str, view: torch.Tensor, base: torch.Tensor) -> torch.Tensor:
    """``view``, copied from ``base`` by a rule; :func:`replacing` raises in the end if one was written."""
    copies = _COPIES.get()
    if copies is not None:
        copies.append(_Copy(name, tuple((one, version_of(one)) for one in (view, base))))
    return view


def stand_in_of(module: torch.nn.Module, rules: Rules = RULES) -> torch.nn.Module:
    """What a rule puts in place of ``module``; itself if none does. Its parts are as they are."""
    rule = next((rules.modules[kind] for kind in type(module).__mro__ if kind in rules.modules), None)
    made = module if rule is None else rule(module)
    if made is module:
        return module
    _note(type(module).__name__)
    return made if isinstance(made, torch.nn.Module) else _Called(made)


def without_replaced_modules(module: torch.nn.Module, rules: Rules = RULES) -> torch.nn.Module:
    """``module`` with what stands in for those of its parts that have a rule; itself if none has.

    Everything else is shared with the original, parameters included.
    """
    made = stand_in_of(module, rules)
    if made is not module:
        return made
    children = {name: without_replaced_modules(child, rules) for name, child in module.named_children()}
    if all(child is submodules(module)[name] for name, child in children.items()):
        return module
    twin = copy.copy(module)
    twin._modules = {**submodules(module), **children}
    return twin


_REPLACED: ContextVar[set[str] | None] = ContextVar("torchstone_replaced", default=None)


@contextmanager
def replacements() -> Iterator[set[str]]:
    """The names of what rules replace in models that are captured inside the block."""
    found: set[str] = set()
    token = _REPLACED.set(found)
    try:
        yield found
    finally:
        _REPLACED.reset(token)


def _note(name: str) -> None:
    found = _REPLACED.get()
    if found is not None:
        found.add(name)


def _noted(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    @functools.wraps(function)
    def noting(*args: Any, **kwargs: Any) -> Any:
        _note(name)
        return function(*args, **kwargs)

    return noting


class _Called(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


def without_stand_ins(value: Any) -> Any:
    """``value`` with every stand-in replaced by a dict of its dense parts; itself if it has none."""

    def is_stand_in(leaf: Any) -> bool:
        return isinstance(leaf, StandIn)

    if not any(map(is_stand_in, pytree.tree_leaves(value, is_leaf=is_stand_in))):
        return value  # made anew, some containers compute what they hold once more
    return pytree.tree_map(
        lambda leaf: leaf.parts() if is_stand_in(leaf) else leaf, value, is_leaf=is_stand_in
    )


# Bounds -------------------------------------------------------------------------------

_BOUNDS: ContextVar[Mapping[str, int] | None] = ContextVar("torchstone_bounds", default=None)


@contextmanager
def bounds(**sizes: int) -> Iterator[None]:
    """Give results whose sizes depend on values a fixed size, for what is captured inside the block.

    ``nonzeros``: entries of a sparse tensor made of a dense one (by default as
    many as that has); ``classes``: of ``one_hot`` without ``num_classes``; ``selected``: elements
    of ``masked_select`` and ``x[mask]``, places of ``nonzero``; ``bins``: of ``bincount``. What a rule
    makes is padded to the bound; entries beyond it are left out. A rule of your own
    asks for other names with :func:`bound`.
    """
    for name, size in sizes.items():
        if not isinstance(size, int) or size < 1:
            raise CaptureError(f"the bound {name}={size!r} is not a positive integer")
    token = _BOUNDS.set({**(_BOUNDS.get() or {}), **sizes})
    try:
        yield
    finally:
        _BOUNDS.reset(token)


def declared_bounds() -> Mapping[str, int]:
    """What :func:`bounds` declares here."""
    return _BOUNDS.get() or {}


def pads() -> bool:
    """Whether results are padded to bounds here: inside of :func:`bounds`."""
    return _BOUNDS.get() is not None


def bound(name: str, what: str, default: int | None = None) -> int:
    """The declared bound, else ``default``; raises :class:`CaptureError` about ``what`` without either."""
    size = (_BOUNDS.get() or {}).get(name, default)
    if size is None:
        raise CaptureError(
            f"{what} depends on values, and the shapes of a program do not",
            hint=f"declare how large it may become: with torchstone.bounds({name}=…): torchstone.export(…)",
        )
    return size
