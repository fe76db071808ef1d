"""Watch or break lowerings: changes to the registry while a suite runs.

Not here: the possible faults (``catalogue``), and whether the suite notices them (``campaign``).
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import torch

from ... import hlo
from ...hlo import Value
from ...lowering import Lowering, Spec, load
from ...lowering.registry import EXPANSIONS
from ...torch_internals.fake import LOGGER, FakeTensorMode, detect_fake_mode
from .catalogue import Arguments, Fault

Specs = Spec | tuple[Any, ...] | None


@dataclass(frozen=True)
class Seen:
    """One call of a lowering: its arguments with fake tensors, and PyTorch's specs of its results."""

    arguments: Arguments
    results: Specs


Calls = Mapping[str, Sequence[Seen]]
"""The calls of a run by overload."""


class Effect(Enum):
    """The effect of a fault on a call; larger values are easier to notice."""

    NOTHING = 0
    """The call is unchanged."""
    REFUSED = 1
    """PyTorch rejects the call, or gives its results another shape or dtype."""
    SHOWS = 2
    """The call is changed, and its results have the same shapes and dtypes as before."""


@contextmanager
def watched() -> Iterator[Calls]:
    """Collect every call of a lowering inside the block."""
    calls: dict[str, list[Seen]] = defaultdict(list)

    def watch(lowering: Lowering) -> Lowering:
        def function(**given: Any) -> Any:
            calls[lowering.name].append(Seen(given["meta"], given["out"]))
            return lowering.function(**_taken(lowering, given))

        return _replacing(lowering, function)

    with _registered([watch(one) for one in load()]):
        yield calls


def in_place(lowering: Lowering, fault: Fault) -> Any:
    """Give ``lowering`` the ``fault`` inside the block."""
    return _registered([_broken(lowering, fault)])


def effect(lowering: Lowering, fault: Fault, seen: Seen) -> Effect:
    """Return the effect of ``fault`` on one call."""
    if fault.result is not None:
        shows = any(fault.concerns(one) for one in _leaves(seen.results) if one is not None)
    elif fault.operand is not None:
        shows = any(map(_concerned(fault), seen.arguments.values()))
    else:
        return _effect_on_call(lowering, fault, seen)
    return Effect.SHOWS if shows else Effect.NOTHING


def _concerned(fault: Fault) -> Any:
    from ... import dtypes

    def concerned(argument: Any) -> bool:
        return any(
            fault.concerns(Spec(tuple(one.shape), dtypes.from_torch(one.dtype)))
            for one in _leaves(argument)
            if isinstance(one, torch.Tensor)
        )

    return concerned


def _effect_on_call(lowering: Lowering, fault: Fault, seen: Seen) -> Effect:
    changed = seen.arguments if fault.arguments is None else fault.arguments(seen.arguments)
    called = fault.instead or lowering
    if called is lowering and _same(changed, seen.arguments):
        return Effect.NOTHING
    return Effect.SHOWS if _fits(called, changed, seen) else Effect.REFUSED


def _fits(lowering: Lowering, changed: Arguments, seen: Seen) -> bool:
    """Whether PyTorch gives the changed call results of the same shapes and dtypes."""
    from ...compiler.graphs import spec_of

    mode = detect_fake_mode(_leaves(list(changed.values()))) or FakeTensorMode()
    try:
        with _silent(), mode, torch.no_grad():
            found = spec_of(lowering.overload(**changed))
    except Exception:  # noqa: BLE001  # PyTorch may raise anything for a call that it rejects
        return False
    mine, theirs = _leaves(found), _leaves(seen.results)
    return len(mine) == len(theirs) and all(map(_alike, mine, theirs))


@contextmanager
def _silent() -> Iterator[None]:
    """Silence PyTorch's log: it records every call that it rejects on fake tensors, with a traceback."""
    logger = logging.getLogger(LOGGER)
    before = logger.disabled
    logger.disabled = True
    try:
        yield
    finally:
        logger.disabled = before


def _alike(one: Spec | None, other: Spec | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.dtype is other.dtype and hlo.same_shape(one.shape, other.shape)


def _broken(lowering: Lowering, fault: Fault) -> Lowering:
    """Return ``lowering`` with ``fault`` in the calls where it shows; other calls stay correct."""

    def function(**given: Any) -> Any:
        taken = _taken(lowering, given)
        if fault.result is not None:
            return _spoiled(lowering.function(**taken), fault)
        if fault.operand is not None:
            return lowering.function(**{name: _mapped(one, fault.operand) for name, one in taken.items()})
        seen = Seen(given["meta"], given["out"])
        if _effect_on_call(lowering, fault, seen) is not Effect.SHOWS:
            return lowering.function(**taken)
        called = fault.instead or lowering
        if fault.arguments is not None:
            named = {name: given[name] for name in lowering.parameters if name in given}
            given |= {**fault.arguments(named), "meta": fault.arguments(given["meta"])}
        return called.function(**_taken(called, given))

    return _replacing(lowering, function)


def _spoiled(result: Any, fault: Fault) -> Any:
    """Return ``result`` with every value changed that the fault concerns."""
    assert fault.result is not None
    if isinstance(result, list | tuple):
        return [_spoiled(one, fault) for one in result]
    return fault.result(result) if isinstance(result, Value) and fault.concerns(result) else result


def _mapped(argument: Any, change: Any) -> Any:
    if isinstance(argument, Value):
        return change(argument)
    if isinstance(argument, list) and any(isinstance(one, Value) for one in argument):
        return [_mapped(one, change) for one in argument]
    return argument


def _replacing(lowering: Lowering, function: Any) -> Lowering:
    """Return ``lowering`` with another function, which also receives ``out`` and ``meta``."""
    return replace(lowering, function=function, special=lowering.special | {"out", "meta"})


def _taken(lowering: Lowering, given: Arguments) -> dict[str, Any]:
    """Return those of a replacing function's arguments that the lowering itself accepts."""
    wanted = {*lowering.parameters, *lowering.special}
    return {name: one for name, one in given.items() if name in wanted}


@contextmanager
def _registered(changed: Iterable[Lowering]) -> Iterator[None]:
    """Replace the lowerings of some overloads in the registry, inside the block."""
    registry = load()
    pairs = [(registry.get(one.overload), one) for one in changed]
    for _, one in pairs:
        registry.remove(one.overload)
        registry.add(one)
    try:
        yield
    finally:
        for right, one in pairs:
            registry.remove(one.overload)
            if right is not None:
                registry.add(right)


def expands(lowering: Lowering) -> bool:
    """Whether the lowering leaves calls to PyTorch's own expansion, which has its own arguments."""
    return bool(EXPANSIONS & lowering.special)


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, list | tuple):
        return [leaf for item in value for leaf in _leaves(item)]
    return [value]


def _same(one: Any, other: Any) -> bool:
    """Whether two calls' arguments are equal: tensors by identity, all else by value."""
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(_same(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, torch.Tensor) or isinstance(other, torch.Tensor):
        return one is other
    return isinstance(one, bool) is isinstance(other, bool) and bool(one == other)
