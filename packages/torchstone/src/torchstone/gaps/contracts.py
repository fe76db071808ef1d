"""Trials of an API whose reference side cannot run here: its result is checked against its documentation.

The result's type must fit the return annotation. An API without an annotation is called, too: it must not
fail.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch

from .answers import Trial
from .arguments import Arguments, argument_sets
from .outcomes import run
from .signatures import Parameter
from .surface import Api, resolve
from .trials import callable_safely

_TYPES: Mapping[str, tuple[type, ...]] = {
    "Tensor": (torch.Tensor,),
    "None": (type(None),),
    "bool": (bool,),
    "dict": (dict,),
    "float": (float, int),
    "int": (int,),
    "list": (list,),
    "str": (str,),
    "tuple": (tuple,),
}
_NOT_CALLED = re.compile(
    r".*\.(set_\w+|init|seed\w*|manual_seed\w*|change_\w+|\w*_delete|use_mem_pool|make_graphed_callables)"
)
"""APIs whose effect a scope cannot undo, or that need a module; separate tests call them."""
_ANSWERS_YES_OR_NO = re.compile(r"is_\w+|query")
"""Names of functions that return a bool, for those without a return annotation."""
_OBJECTS = {"event": "torch.cuda.Event", "stream": "torch.cuda.Stream"}
"""Parameter → the class of its argument; methods of these classes are called, each on a new object."""


def contract_trials(
    apis: Iterable[Api], inside: Callable[[], AbstractContextManager[Any]]
) -> Mapping[str, Trial]:
    """Call each function with its required arguments, within ``inside()``, and check the result's type."""
    chosen = [(api, found) for api in apis if (found := contract_arguments(api)) is not None]
    with inside():
        return {
            api.name: contract_trial(api, contract_function(api, resolve), arguments)
            for api, arguments in chosen
        }


def contract_arguments(api: Api) -> Arguments | None:
    """Return the arguments for a trial of ``api``, or None if it must not be called."""
    if api.namespace in _OBJECTS.values() and api.kind == "method" and api.signatures:
        required = [one.name for one in api.signatures[0].parameters[1:] if _is_required(one)]
        return Arguments((), dict.fromkeys(required)) if set(required) <= _OBJECTS.keys() else None
    if api.kind != "function" or not callable_safely(api) or _NOT_CALLED.fullmatch(api.name):
        return None
    return next(argument_sets(api))


def _is_required(one: Parameter) -> bool:
    return one.default is None and not one.variadic


def contract_function(api: Api, look_up: Callable[[str], Any]) -> Callable[..., Any]:
    """Return the function that a trial calls; for a method, it makes the object and its arguments."""
    if api.kind != "method":
        return look_up(api.name)

    def call(**arguments: None) -> Any:
        made = {name: look_up(_OBJECTS[name])() for name in arguments}
        return getattr(look_up(api.namespace)(), api.leaf)(**made)

    return call


def contract_trial(
    api: Api, function: Callable[..., Any], arguments: Arguments, place: str | None = None
) -> Trial:
    """Call ``function`` for ``api``, with tensors on ``place``, and check the type of its result."""
    outcome = run(function, arguments, "cuda", place)
    if outcome.exception:
        return Trial(1, (f"raises {outcome.exception}: {outcome.message}",), silent=False)
    documented = api.signatures[0].returns or ("bool" if _ANSWERS_YES_OR_NO.fullmatch(api.leaf) else "")
    if outcome.kind is None or _is_allowed(outcome.kind, documented):
        return Trial(1)
    return Trial(1, (f"gives {outcome.kind.__name__}, documented is {documented}",))


def _is_allowed(kind: type, documented: str) -> bool:
    """Whether a result of type ``kind`` fits the annotation.

    If the annotation is a class that is not known here, any type fits except ``NoneType`` and ``type``.
    """
    allowed = expected_types(documented)
    if allowed is not None:
        return issubclass(kind, allowed)
    named = re.fullmatch(r"[\w.]+", documented.strip("'\"")) is not None and documented not in (
        "Any",
        "object",
    )
    return not (named and kind in (type(None), type))


def expected_types(annotation: str) -> tuple[type, ...] | None:
    """Return the types that a return annotation allows; None if it names a type that is not known here."""
    found: list[type] = []
    for word in re.sub(r"\[.*\]", "", annotation.strip("'\"")).replace("torch.", "").split("|"):
        if word.strip() not in _TYPES:
            return None
        found += _TYPES[word.strip()]
    return tuple(found)
