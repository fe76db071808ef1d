"""Makes a module of a function or method, with the modules that it reaches as submodules.

So buffers and parameters of these modules become state of the program, as if the module were exported.
"""

from __future__ import annotations

import dis
import functools
import inspect
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.export import ExportedProgram

_OWNER = "self"
"""The name of the submodule whose method is exported."""


class _FunctionModule(torch.nn.Module):
    """A module that calls a plain function, since ``torch.export`` takes only modules."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = _named_forward(function)
        found: dict[int, tuple[str, torch.nn.Module]] = {}
        for name, module in _reached(function, {}):
            found.setdefault(id(module), (name, module))
        inner = {id(part) for _, module in found.values() for part in [*module.modules()][1:]}
        for key, (name, module) in found.items():
            if key not in inner:
                while hasattr(self, name):
                    name += "_"
                self.add_module(name, module)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


def as_module(model: torch.nn.Module | Callable[..., Any]) -> torch.nn.Module:
    """Return ``model`` if it is a module, or a module that calls it if it is a function."""
    return model if isinstance(model, torch.nn.Module) else _FunctionModule(model)


def name_as_in_owner(program: ExportedProgram, module: torch.nn.Module) -> None:
    """Name the state of ``program``, an export of ``module``, as the owner of an exported method names it."""
    if not isinstance(module, _FunctionModule) or [name for name, _ in module.named_children()] != [_OWNER]:
        return
    signature, prefix = program.graph_signature, f"{_OWNER}."
    for tensors in (program.state_dict, program.constants):
        for name in [*tensors]:
            tensors[name.removeprefix(prefix)] = tensors.pop(name)
    for spec in (*signature.input_specs, *signature.output_specs):
        if isinstance(spec.target, str):
            spec.target = spec.target.removeprefix(prefix)


def _named_forward(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``function`` named ``forward``: PyTorch records source lines only for frames of that name."""
    if isinstance(function, types.MethodType):
        return types.MethodType(_named_forward(function.__func__), function.__self__)
    if not isinstance(function, types.FunctionType):
        return function
    code = function.__code__.replace(co_name="forward")
    named = types.FunctionType(
        code, function.__globals__, "forward", function.__defaults__, function.__closure__
    )
    named.__kwdefaults__ = function.__kwdefaults__
    return named


def _reached(value: Any, seen: dict[int, Any], name: str = "module") -> Iterator[tuple[str, torch.nn.Module]]:
    """Yield the modules that ``value``, which a function names ``name``, is, contains or uses by name."""
    if isinstance(value, torch.nn.Module):
        yield name, value
        return
    if id(value) in seen:
        return
    seen[id(value)] = value  # an object that is gone could give its id to another
    if isinstance(value, types.MethodType):
        if isinstance(value.__self__, torch.nn.Module):
            yield _OWNER, value.__self__
        else:
            yield from _used_attributes(value.__self__, value.__func__, seen)
        yield from _reached(value.__func__, seen, name)
    elif isinstance(value, functools.partial):
        yield from _reached(value.func, seen, name)
        yield from _reached([*value.args, value.keywords], seen, "argument")
    elif isinstance(value, types.FunctionType):
        for one, used in _used_variables(value):
            yield from _reached(used, seen, one)
        yield from _reached([*(value.__defaults__ or ()), value.__kwdefaults__], seen, "default")
    elif isinstance(value, (list, tuple)):
        for place, one in enumerate(value):
            yield from _reached(one, seen, f"{name}_{place}")
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from _reached(one, seen, key if isinstance(key, str) and key.isidentifier() else name)
    elif callable(value) and not isinstance(value, type):
        method = inspect.getattr_static(type(value), "__call__", None)
        yield from _used_attributes(value, method, seen)
        yield from _reached(method, seen, name) if isinstance(method, types.FunctionType) else ()


def _used_variables(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield the variables around ``function`` that it uses; of its globals, no functions of other files."""
    code = function.__code__
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # the variable has no value yet
            continue
    for name in _names(code, "LOAD_GLOBAL"):
        value = function.__globals__.get(name)
        if not isinstance(value, types.FunctionType) or value.__code__.co_filename == code.co_filename:
            yield name, value


def _used_attributes(owner: Any, method: Any, seen: dict[int, Any]) -> Iterator[tuple[str, torch.nn.Module]]:
    """Yield the modules in those attributes of ``owner`` that ``method`` names."""
    if isinstance(method, types.FunctionType):
        own = getattr(owner, "__dict__", {})
        for name in _names(method.__code__, "LOAD_ATTR", "LOAD_METHOD"):
            yield from _reached(own.get(name), seen, name)


def _names(code: types.CodeType, *operations: str) -> Iterator[str]:
    """Yield the names that these operations of ``code``, and of the functions in it, use."""
    yield from (str(one.argval) for one in dis.get_instructions(code) if one.opname in operations)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant, *operations)
