"""The registry of capture rules, the contexts in which they are in force, and declared bounds."""

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
    """Capture rules by what they replace: functions, classes of modules, and attributes of any owner.

    ``dynamo`` has the functions that ``torch.compile`` replaces, too.
    """

    calls: dict[Any, Callable[..., Any]] = field(default_factory=dict)
    modules: dict[type[torch.nn.Module], Callable[[Any], Callable[..., Any]]] = field(default_factory=dict)
    attributes: dict[tuple[Any, str], Callable[..., Any]] = field(default_factory=dict)
    dynamo: dict[Callable[..., Any], Callable[..., Any]] = field(default_factory=dict)

    def __repr__(self) -> str:  # short, since help() shows it as a default argument
        return f"<{len(self.calls) + len(self.modules) + len(self.attributes)} capture rules>"


RULES = Rules()


def capture_rule(
    *targets: Any, of: Iterable[Any] = (), in_dynamo: bool = False, into: Rules = RULES
) -> Callable[[Function], Function]:
    """Register a function to be called instead of ``targets`` while a model is captured.

    A target is one of these; a later rule for the same target replaces the earlier one:

    - a function or method that PyTorch's ``__torch_function__`` protocol reaches
      (``torch.*``, ``torch.nn.functional.*``, ``torch.ops.*``, methods of
      ``torch.Tensor``): the rule gets its arguments. The original is called instead if the
      rule returns ``NotImplemented``, or if the arguments do not fit the rule's signature.
      A custom operator with a rule is not traced through, so a rule that always returns
      ``NotImplemented`` leaves the operator in the graph.
    - a class of modules: the rule gets an instance, and returns a callable that replaces it.
    - ``(owner, "name")``, an attribute that is looked up when it is called: the
      rule takes its place during a capture, in this thread.

    The rule is added to the records of ATen's operators with the target's name, and of the
    operators in ``of``, which the rule calls. ``in_dynamo`` is for functions that read values:
    Dynamo traces the rule instead of ending the graph of ``torch.compile``.
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
    """Return ``target`` in a list if it is an operator, else ATen's operator of its name, if there is one."""
    if isinstance(target, (OpOverload, OpOverloadPacket)):
        return [target]
    name = getattr(target, "__name__", "")
    return (
        [getattr(torch.ops.aten, name)] if inspect.isroutine(target) and hasattr(torch.ops.aten, name) else []
    )


class StandIn:
    """An object that a rule returns in place of a tensor that no program can have.

    It has those methods of the tensor for which there are rules. ``kind`` describes it
    in error messages. If a model returns one, the program returns its dense parts.
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
    """A mode that calls rules instead of the functions that they replace."""

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
    """Call ``func``, or its Python implementation if it is an operator that is traced through.

    An operator whose implementation cannot be traced stays in the graph, and is reported as unsupported.
    """
    implementation = implementation_of(func)
    if implementation is not None:
        with suppress(Exception):
            return implementation(*args, **kwargs)
    return func(*args, **kwargs)


def _takes(rule: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether the arguments fit the rule. If not, as with ``out=``, PyTorch's own function is called."""
    try:
        _signature(rule).bind(*args, **kwargs)
    except TypeError:
        return False
    return True


_signature = cache(inspect.signature)


@contextmanager
def replacing(rules: Rules = RULES) -> Iterator[None]:
    """Inside, rules replace calls and attributes; for modules see :func:`without_replaced_modules`."""
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
    """A copy in place of a view. Neither may be written into, since the other would not see the write."""

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
    """Return ``view``, a copy from ``base``; :func:`replacing` raises at its end if either is written to."""
    copies = _COPIES.get()
    if copies is not None:
        copies.append(_Copy(name, tuple((one, version_of(one)) for one in (view, base))))
    return view


def stand_in_of(module: torch.nn.Module, rules: Rules = RULES) -> torch.nn.Module:
    """Return what a rule puts in place of ``module``, or ``module``. Its submodules are not replaced."""
    rule = next((rules.modules[kind] for kind in type(module).__mro__ if kind in rules.modules), None)
    made = module if rule is None else rule(module)
    if made is module:
        return module
    _note(type(module).__name__)
    return made if isinstance(made, torch.nn.Module) else _Called(made)


def without_replaced_modules(module: torch.nn.Module, rules: Rules = RULES) -> torch.nn.Module:
    """Return ``module`` with all submodules that have a rule replaced, or ``module`` itself if none has.

    The result shares everything else with the original, parameters included.
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
    """Yields a set that collects the names of what rules replace in models captured inside the block."""
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
    """A module that calls a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


def without_stand_ins(value: Any) -> Any:
    """Return ``value`` with each stand-in replaced by its dense parts; ``value`` itself if it has none."""

    def is_stand_in(leaf: Any) -> bool:
        return isinstance(leaf, StandIn)

    if not any(map(is_stand_in, pytree.tree_leaves(value, is_leaf=is_stand_in))):
        return value  # a copy of some containers would compute their contents again
    return pytree.tree_map(
        lambda leaf: leaf.parts() if is_stand_in(leaf) else leaf, value, is_leaf=is_stand_in
    )


# Bounds -------------------------------------------------------------------------------

_BOUNDS: ContextVar[Mapping[str, int] | None] = ContextVar("torchstone_bounds", default=None)


@contextmanager
def bounds(**sizes: int) -> Iterator[None]:
    """Inside, results whose sizes depend on values get a fixed size while a model is captured.

    - ``nonzeros``: the entries of a sparse tensor made from a dense one (by default one per element)
    - ``classes``: the classes of ``one_hot`` without ``num_classes``
    - ``selected``: the elements of ``masked_select`` and ``x[mask]``, and the places of ``nonzero``
    - ``bins``: the bins of ``bincount``

    Results are padded to the bound, and entries beyond it are left out. Your own rules may read bounds with
    other names, using :func:`bound`.
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
    """Return the bounds that :func:`bounds` declares here."""
    return _BOUNDS.get() or {}


def pads() -> bool:
    """Whether results are padded to bounds, because this runs inside :func:`bounds`."""
    return _BOUNDS.get() is not None


def bound(name: str, what: str, default: int | None = None) -> int:
    """Return the declared bound, else ``default``; raises :class:`CaptureError` if there is neither."""
    size = (_BOUNDS.get() or {}).get(name, default)
    if size is None:
        raise CaptureError(
            f"{what} depends on values, and the shapes of a program do not",
            hint=f"declare how large it may become: with torchstone.bounds({name}=…): torchstone.export(…)",
        )
    return size
