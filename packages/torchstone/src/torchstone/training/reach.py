"""What code of a step can reach (attributes, closures, globals, defaults), and whose code that is."""

from __future__ import annotations

import sys
import sysconfig
from collections import deque
from collections.abc import Iterable, Iterator
from functools import cache, partial
from itertools import chain, islice
from types import CodeType, FunctionType, MethodType, ModuleType, NoneType
from typing import Any

import torch

from ..compiler.graphs import is_users_file
from .recipe import Recipe

_INSTALLED = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
_LEAVES = (int, float, str, NoneType, torch.Tensor)
_MOST = 3000
"""The most values that are looked at, nearest first, to save time on libraries and datasets."""
_OF_MODULES = frozenset(vars(torch.nn.Module()))
"""Attributes that all modules have. They are followed only if they are not empty."""


def reachable(recipe: Recipe) -> Iterator[tuple[str, Any]]:
    """Yield the values that the loss or the model refers to, except numbers, strings and tensors.

    Each comes with the name by which it is reached, such as ``model.layer.cache``.
    """
    waiting: deque[tuple[str, Any]] = deque([("loss_fn", recipe.loss_fn), ("model", recipe.model)])
    seen: dict[int, Any] = {}
    while waiting and len(seen) < _MOST:
        name, value = waiting.popleft()
        if isinstance(value, _LEAVES) or id(value) in seen:
            continue
        seen[id(value)] = value  # keeps the value alive, so that no other one gets its id
        yield name, value
        waiting += islice(_parts(name, value), _MOST)


def outer_tensors(recipe: Recipe) -> dict[int, str]:
    """Return the names of the tensors that the loss or the model refers to, by their identities."""
    found: dict[int, str] = {}
    for name, value in reachable(recipe):
        parts: Iterable[tuple[str, Any]]
        if isinstance(value, torch.nn.Module):
            own = chain(value.named_parameters(), value.named_buffers())
            parts = ((f"{name}.{path}", one) for path, one in own)
        else:
            parts = islice(_parts(name, value), _MOST)
        for label, one in parts:
            if isinstance(one, torch.Tensor):
                found.setdefault(id(one), label)
    return found


def _parts(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield what code can reach from ``value``, with the names that lead there."""
    if isinstance(value, MethodType):
        yield from ((name, value.__self__), (name, value.__func__))
    elif isinstance(value, FunctionType):
        if is_users_file(value.__code__.co_filename):
            yield from _of_function(value)
    elif isinstance(value, partial):
        yield from ((name, one) for one in (value.func, *value.args, *value.keywords.values()))
    elif isinstance(value, dict):
        yield from ((f"{name}[{key!r}]", one) for key, one in value.items())
    elif isinstance(value, (list, tuple, deque)):
        yield from ((f"{name}[{place}]", one) for place, one in enumerate(value))
    elif isinstance(value, torch.nn.Module):
        for path, module in value.named_modules():
            yield from _of_object(f"{name}.{path}" if path else name, module)
    elif is_users_type(type(value)) or is_distribution(value):
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
    names = dict.fromkeys(names_in(code))
    for name in names:
        value = function.__globals__.get(name)
        if isinstance(value, ModuleType):
            if is_users_module(value):
                yield from ((f"{name}.{one}", vars(value)[one]) for one in names if one in vars(value))
        elif value is not None:
            yield name, value


def _of_object(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    for attribute, one in getattr(value, "__dict__", {}).items():
        if attribute not in _OF_MODULES or one:
            yield f"{name}.{attribute}", one
    for kind in type(value).__mro__:
        if is_users_type(kind):
            yield from ((name, one) for one in vars(kind).values() if isinstance(one, FunctionType))


def names_in(code: CodeType) -> Iterator[str]:
    """Yield the names of globals and attributes in ``code`` and in the functions that it defines."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from names_in(constant)


def is_users_type(kind: type) -> bool:
    """Whether a class is not built in, and does not belong to PyTorch or Torchstone."""
    return is_users_module(sys.modules.get(kind.__module__))


def is_distribution(value: Any) -> bool:
    """Whether ``value`` is a distribution or a transform of PyTorch's: objects with plain attributes."""
    return type(value).__module__.startswith("torch.distributions.")


def is_users_module(module: ModuleType | None) -> bool:
    """Whether a Python module is not built in, and does not belong to PyTorch or Torchstone."""
    file = getattr(module, "__file__", None)
    return getattr(module, "__name__", "") == "__main__" if file is None else is_users_file(file)


@cache
def is_installed(file: str) -> bool:
    """Whether ``file`` belongs to Python itself or to an installed package."""
    return file.startswith(_INSTALLED)
