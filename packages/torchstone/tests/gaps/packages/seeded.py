"""Breaks names of PyTorch, each in one way. The analysis of a patching package must find these faults."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any

import torch

Function = Callable[..., Any]
_to, _add, _rand, _grad = torch.Tensor.to, torch.Tensor.add_, torch.rand, torch.set_grad_enabled


def _each_tensor(value: Any, change: Function) -> Any:
    """Return ``value`` with ``change`` applied to its tensors."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, torch.nn.Module):
        for one in value.parameters():
            one.data = change(one.data)
        return value
    if isinstance(value, list | tuple) and not isinstance(value, torch.Size):
        return type(value)(_each_tensor(one, change) for one in value)
    return value


def _on_result(change: Function) -> Callable[[Function], Function]:
    """Make a fault that changes the right result."""

    def fault(original: Function) -> Function:
        return lambda *args, **kwargs: change(original(*args, **kwargs))

    return fault


def _before(act: Function) -> Callable[[Function], Function]:
    """Make a fault that calls ``act`` before it does the right thing."""

    def fault(original: Function) -> Function:
        def broken(*args: Any, **kwargs: Any) -> Any:
            act(args)
            return original(*args, **kwargs)

        return broken

    return fault


def _refuse(_: Any) -> None:
    raise NotImplementedError("not on this device")


def _leave(_: Any) -> None:
    raise SystemExit(0)


def _write(args: tuple[Any, ...]) -> None:
    with torch.no_grad():
        _each_tensor(args[0], lambda tensor: _add(tensor, 1))


def _narrow(original: Function) -> Function:
    """Accept only the first argument."""
    return lambda first=None: original(first)


def _widen(original: Function) -> Function:
    """Require one more argument."""
    return lambda and_this, *args, **kwargs: original(*args, **kwargs)


FAULTS: dict[str, Callable[[Function], Any]] = {
    # for any function
    "removed": lambda original: None,
    "refuses": _before(_refuse),
    "ends the process": _before(_leave),
    "gives nothing": lambda original: lambda *args, **kwargs: None,
    "gives its type": _on_result(type),
    "takes too little": _narrow,
    "needs too much": _widen,
    # for functions that return tensors
    "other dtype": _on_result(lambda result: _each_tensor(result, lambda one: _to(one, torch.float64))),
    "other shape": _on_result(lambda result: _each_tensor(result, lambda one: one[None])),
    "other values": _on_result(lambda result: _each_tensor(result, lambda one: one.detach() + 1)),
    "elsewhere": _on_result(lambda result: _each_tensor(result, lambda one: _to(one, "meta"))),
    "draws": _before(lambda _: _rand(1)),
    "turns gradients off": _before(lambda _: _grad(False)),
    "warns": _before(lambda _: warnings.warn("slow", UserWarning, stacklevel=2)),
    # for functions whose first argument is a tensor or a module
    "writes": _before(_write),
}
WITH_TENSORS = tuple(FAULTS)[7:]


def seed(faults: dict[str, str]) -> None:
    """Break each name with its fault in ``faults``."""
    for name, fault in faults.items():
        path, _, leaf = name.rpartition(".")
        owner: Any = torch
        for part in path.split(".")[1:]:
            owner = getattr(owner, part)
        if fault == "removed":
            delattr(owner, leaf)
            continue
        original = inspect.getattr_static(owner, leaf)
        setattr(owner, leaf, FAULTS[fault](original))
