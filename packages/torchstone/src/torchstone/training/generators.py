"""Generators of random numbers that are objects, such as ``numpy.random.default_rng()``.

Nothing shows that code draws from one but its state. So those that code of a step can reach are found, and
looked at after the trace. Not here: functions of modules (:mod:`.randomness`).
"""

from __future__ import annotations

import random
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from types import CodeType, FunctionType, MethodType, ModuleType, NoneType
from typing import Any

import torch

from ..compiler.graphs import is_users_file
from .randomness import DRAW
from .recipe import Recipe
from .refusals import Refused

_LEAVES = (int, float, str, NoneType, torch.Tensor)
_MOST = 3000
"""Values that are looked at, the nearest first, so that libraries and datasets cost no time."""


@contextmanager
def refusing_draws(recipe: Recipe) -> Iterator[None]:
    """Raises :class:`Refused` if a generator was drawn from inside the block, and gives it its state back."""
    found = [(name, one, _state(one)) for name, one in _generators(recipe)]
    drawn = []
    try:
        yield
    finally:
        for name, one, before in found:
            if repr(_state(one)) != repr(before):
                _restore(one, before)
                module = "random" if isinstance(one, random.Random) else "numpy.random"
                drawn.append(f"{name}, a {module}.{type(one).__name__},")
    if drawn:
        what = f"code of the step draws from {drawn[0]} while the step is traced"
        raise Refused(f"{what}, and every step would have the same numbers", DRAW)


def _generators(recipe: Recipe) -> Iterator[tuple[str, Any]]:
    """Generators that the loss or the modules refer to: in attributes, closures, globals, and defaults."""
    kinds = _kinds()
    waiting: deque[tuple[str, Any]] = deque([("loss_fn", recipe.loss_fn), ("model", recipe.model)])
    seen: dict[int, Any] = {}
    while waiting and len(seen) < _MOST:
        name, value = waiting.popleft()
        if isinstance(value, _LEAVES) or id(value) in seen:
            continue
        seen[id(value)] = value  # which keeps the id from another value
        if isinstance(value, kinds):
            if not isinstance(value, random.SystemRandom):  # it has no state
                yield name, value
        else:
            waiting += islice(_parts(name, value), _MOST)


def _kinds() -> tuple[type, ...]:
    numpy = sys.modules.get("numpy.random")
    return (random.Random, *((numpy.Generator, numpy.RandomState) if numpy is not None else ()))


def _parts(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """What code can reach from ``value``, by the names that it has there."""
    if isinstance(value, MethodType):
        yield from ((name, value.__self__), (name, value.__func__))
    elif isinstance(value, FunctionType):
        if is_users_file(value.__code__.co_filename):
            yield from _of_function(value)
    elif isinstance(value, partial):
        yield from ((name, one) for one in (value.func, *value.args, *value.keywords.values()))
    elif isinstance(value, dict):
        yield from ((f"{name}[{key!r}]", one) for key, one in value.items())
    elif isinstance(value, (list, tuple)):
        yield from ((f"{name}[{place}]", one) for place, one in enumerate(value))
    elif isinstance(value, torch.nn.Module):
        for path, module in value.named_modules():
            yield from _of_object(f"{name}.{path}" if path else name, module)
    elif _is_users(type(value)):
        yield from _of_object(name, value)


def _of_function(function: FunctionType) -> Iterator[tuple[str, Any]]:
    code = function.__code__
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    yield from ((function.__name__, one) for one in function.__defaults__ or ())
    yield from (function.__kwdefaults__ or {}).items()
    names = dict.fromkeys(_names(code))
    for name in names:
        value = function.__globals__.get(name)
        if isinstance(value, ModuleType):
            if _is_users_module(value):
                yield from ((f"{name}.{one}", vars(value)[one]) for one in names if one in vars(value))
        elif value is not None:
            yield name, value


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _of_object(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    for attribute, one in getattr(value, "__dict__", {}).items():
        if not isinstance(one, (dict, set)) or one:  # modules have many of them, all empty
            yield f"{name}.{attribute}", one
    for kind in type(value).__mro__:
        if _is_users(kind):
            yield from ((name, one) for one in vars(kind).values() if isinstance(one, FunctionType))


def _is_users(kind: type) -> bool:
    return _is_users_module(sys.modules.get(kind.__module__))


def _is_users_module(module: ModuleType | None) -> bool:
    file = getattr(module, "__file__", None)
    return file is not None and is_users_file(file)


def _state(generator: Any) -> Any:
    if isinstance(generator, random.Random):
        return generator.getstate()
    return generator.get_state() if hasattr(generator, "get_state") else generator.bit_generator.state


def _restore(generator: Any, state: Any) -> None:
    if isinstance(generator, random.Random):
        generator.setstate(state)
    elif hasattr(generator, "set_state"):
        generator.set_state(state)
    else:
        generator.bit_generator.state = state
