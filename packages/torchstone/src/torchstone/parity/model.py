"""Load a model with example inputs from the text that a user types.

The text is ``package.module:factory``, ``path/to/file.py:factory`` or the name of a model in
the zoo (a whole network, an architecture, or a model of the inventory). A factory takes no
arguments and returns ``(model, args)`` or ``(model, args, kwargs)``. Not here: the
models themselves (:mod:`.zoo`).
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import partial
from importlib.machinery import SourceFileLoader
from inspect import isfunction
from pathlib import Path
from typing import Any

from ..errors import ModelError, described
from .zoo import ARCHITECTURES, INVENTORY, MODELS, architectures

_SYNTAX = "package.module:factory, file.py:factory, or one of the zoo: " + ", ".join(MODELS)


@dataclass(frozen=True)
class Model:
    """A model (an nn.Module or a function) with example inputs; ``name`` is what the user typed.

    ``bounds``, ``reference`` and ``in_eager`` are those of :class:`~.zoo.Example`.
    """

    name: str
    model: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    bounds: Mapping[str, int] = field(default_factory=dict)
    reference: Callable[..., Any] | None = None
    in_eager: tuple[str, ...] = ()


def load_model(name: str) -> Model:
    """Load the model that ``name`` stands for.

    Runs the user's code. Raises :class:`ModelError` if nothing has that name, or if the
    factory raises or does not return a model with inputs, and
    :class:`~torchstone.errors.MissingExtra` for a zoo model whose extra is not installed.
    """
    if name in INVENTORY and name not in MODELS:
        example = INVENTORY[name].make()
        return Model(
            name,
            example.model,
            example.args,
            bounds=example.bounds or {},
            reference=example.reference,
            in_eager=example.in_eager,
        )
    return _checked(name, _call(name, find_factory(name)))


def find_factory(name: str) -> Callable[[], Any]:
    """Return the factory that ``name`` stands for; raises :class:`ModelError` if there is none."""
    if name in MODELS or name in INVENTORY:
        return MODELS.get(name) or INVENTORY[name]
    if name in ARCHITECTURES:
        return partial(architectures.made, name)
    place, colon, attribute = name.rpartition(":")
    if not (place and attribute.isidentifier()):
        what = "names no factory after the colon" if colon else "is neither place:factory nor in the zoo"
        close = get_close_matches(name, [*MODELS, *ARCHITECTURES, *INVENTORY], 1)
        raise ModelError(
            f"MODEL {name!r} {what}", hint=f"write {f'{close[0]}, or ' if close else ''}{_SYNTAX}"
        )
    module = _import_file(Path(place), name) if place.endswith(".py") else _import_module(place, name)
    factory = getattr(module, attribute, None)
    if factory is None:
        own = [f.__name__ for f in vars(module).values() if isfunction(f) and f.__module__ == module.__name__]
        known = ", ".join(own[:_FUNCTIONS_NAMED]) or "none"
        raise ModelError(f"{place} has no {attribute!r}", hint=f"its functions: {known}")
    if not callable(factory):
        raise ModelError(f"{name} is not a factory but has type {type(factory).__name__}", hint=_RETURNS)
    return factory


_FUNCTIONS_NAMED = 10
_RETURNS = "a factory is a function without arguments that returns (model, args) or (model, args, kwargs)"


def _import_file(path: Path, name: str) -> Any:
    if not path.is_file():
        raise ModelError(
            f"MODEL {name!r}: there is no file {path}", hint="check the path, relative to where you are"
        )
    _add_to_path(path.resolve().parent)
    loader = SourceFileLoader(
        f"torchstone_model_{path.stem}", str(path)
    )  # a name that does not shadow a module
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[loader.name] = module  # dataclasses look their module up there
    _run(lambda: loader.exec_module(module), f"importing {path} failed")
    return module


def _import_module(place: str, name: str) -> Any:
    _add_to_path(Path.cwd())
    try:
        return _run(lambda: importlib.import_module(place), f"importing {place} failed")
    except ModelError as error:
        missing = error.__cause__
        if isinstance(missing, ModuleNotFoundError) and missing.name and place.startswith(missing.name):
            raise ModelError(
                f"MODEL {name!r}: there is no module {place}", hint=f"write {_SYNTAX}"
            ) from missing
        raise


def _add_to_path(folder: Path) -> None:
    """Let the user's modules import each other, as with ``python file.py`` and ``python -m module``."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _call(name: str, factory: Callable[[], Any]) -> Any:
    if factory in MODELS.values():
        return factory()
    return _run(factory, f"the factory {name} failed")


def _run(action: Callable[[], Any], what: str) -> Any:
    """Turn any error of the user's code into one :class:`ModelError` that names the line."""
    try:
        return action()
    except (Exception, SystemExit) as error:
        raise ModelError(f"{what}: {type(error).__name__}: {error}{_line_of(error)}") from error


def _line_of(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None or isinstance(error, SyntaxError):  # its message names the place
        return ""
    return f" (at {trace.tb_frame.f_code.co_filename}:{trace.tb_lineno})"


def _checked(name: str, found: Any) -> Model:
    """Return the factory's result as a :class:`Model`; raises :class:`ModelError` if it has a wrong form."""
    if not isinstance(found, tuple) or len(found) not in (2, 3) or not callable(found[0]):
        raise ModelError(f"the factory {name} returned {_kind(found)}", hint=_RETURNS)
    model, args, *rest = found
    kwargs = rest[0] if rest else {}
    if not isinstance(args, (tuple, list)):
        raise ModelError(
            f"the factory {name} returned {_kind(args)} as example inputs",
            hint="return a tuple of positional arguments; for one input x write (x,)",
        )
    if not isinstance(kwargs, dict):
        raise ModelError(f"the factory {name} returned {_kind(kwargs)} as keyword arguments", hint=_RETURNS)
    return Model(name, model, tuple(args), kwargs)


def _kind(value: Any) -> str:
    if isinstance(value, tuple):
        return f"a tuple of {', '.join(type(item).__name__ for item in value) or 'nothing'}"
    return described(value)
