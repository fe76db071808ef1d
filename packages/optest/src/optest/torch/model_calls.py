"""Finds which of PyTorch's functions a model calls, by watching a single call of the model.

Not here: what of it is covered (``optest.coverage.models``).
"""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..errors import MissingExtra, UsageError, told

_HINT = (
    "give MODULE:FUNCTION, a function without arguments that returns (model, args); or a file of torch.export"
)

_QUERIES = frozenset(
    {
        "__get__", "__set__", "__len__", "__repr__", "__format__", "_assert", "dim", "size", "stride",
        "numel", "element_size", "storage_offset", "is_contiguous", "is_floating_point", "is_complex",
        "has_names",
    }
)  # fmt: skip
"""Functions that compute nothing: shapes, strides, attributes."""


def count_calls(model: str) -> Counter[str]:
    """Count the calls of each function, by PyTorch's name for it, like ``torch.nn.functional.linear``.

    ``model`` is ``module:function``, whose function returns a callable and its arguments, or
    a file written by ``torch.export.save``. Raises :class:`UsageError` if it is neither, and
    :class:`MissingExtra` without PyTorch.
    """
    try:
        import torch
    except ImportError as error:
        raise MissingExtra("counting the calls of a model needs PyTorch", extra="torch") from error
    called, arguments = _exported(model) if Path(model).suffix == ".pt2" else _made(model)
    watch = _watch()
    try:
        with torch.no_grad(), watch:
            called(*arguments)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        raise UsageError(f"the model {model} raised {told(error)}") from error
    return watch.calls


def _made(model: str) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    module, _, function = model.partition(":")
    if not function:
        raise UsageError(f"{model!r} is not a model", _HINT)
    here = str(Path.cwd())
    added = here not in sys.path
    if added:
        sys.path.insert(0, here)  # as `python -m` would
    try:
        made = getattr(importlib.import_module(module), function)()
        called, arguments = made
    except BaseException as error:  # the user's module may raise anything, also SystemExit
        if isinstance(error, KeyboardInterrupt):
            raise
        raise UsageError(f"{model!r} gives no model: {told(error)}", _HINT) from error
    finally:
        if added:
            sys.path.remove(here)
    if not callable(called):
        raise UsageError(f"{model!r} gives {type(called).__name__}, which cannot be called", _HINT)
    return called, tuple(arguments)


def _exported(model: str) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    import torch

    try:
        program = torch.export.load(model)
    except Exception as error:
        raise UsageError(f"{model} is not a program of torch.export: {error}", _HINT) from error
    if program.example_inputs is None:
        raise UsageError(f"{model} has no example inputs", "export it with them")
    args, kwargs = program.example_inputs
    module = program.module()
    return (lambda *given: module(*given, **kwargs)), tuple(args)


def _watch() -> Any:
    """Return a mode that counts calls; its class is defined here because its base class needs PyTorch."""
    from torch.overrides import TorchFunctionMode, resolve_name

    class Watch(TorchFunctionMode):
        def __init__(self) -> None:
            super().__init__()
            self.calls: Counter[str] = Counter()

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = _operator_name(func) or resolve_name(func)
            if name is not None and name.rpartition(".")[2] not in _QUERIES:
                self.calls[name] += 1
            return func(*args, **(kwargs or {}))

    return Watch()


def _operator_name(func: Any) -> str | None:
    """Return ``torch.add`` for ``aten.add.Tensor``, which exported programs call; else None."""
    packet = getattr(func, "overloadpacket", None)
    return None if packet is None else f"torch.{packet.__name__}"
