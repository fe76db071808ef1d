"""Trials of an API whose own side cannot run here: its result is held against what its documentation says.

That is the return annotation, read as a type. What has none is called all the same: it must not fail.
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
"""What a scope cannot take back, and what wants a module: their own tests call them."""
_ANSWERS_YES_OR_NO = re.compile(r"is_\w+|query")
"""Names that say what they give where no annotation does."""
_OBJECTS = {"event": "torch.cuda.Event", "stream": "torch.cuda.Stream"}
"""Parameter → the class of what it takes; methods of these classes are called, each on a new object."""


def contract_trials(
    apis: Iterable[Api], inside: Callable[[], AbstractContextManager[Any]]
) -> Mapping[str, Trial]:
    """Calls each function with what it requires, within ``inside()``, and checks the type of its result."""
    chosen = [(api, found) for api in apis if (found := contract_arguments(api)) is not None]
    with inside():
        return {
            api.name: contract_trial(api, contract_function(api, resolve), arguments)
            for api, arguments in chosen
        }


def contract_arguments(api: Api) -> Arguments | None:
    """What a trial calls ``api`` with; None where it is not called."""
    if api.namespace in _OBJECTS.values() and api.kind == "method" and api.signatures:
        required = [one.name for one in api.signatures[0].parameters[1:] if _is_required(one)]
        return Arguments((), dict.fromkeys(required)) if set(required) <= _OBJECTS.keys() else None
    if api.kind != "function" or not callable_safely(api) or _NOT_CALLED.fullmatch(api.name):
        return None
    return next(argument_sets(api))


def _is_required(one: Parameter) -> bool:
    return one.default is None and not one.variadic


def contract_function(api: Api, look_up: Callable[[str], Any]) -> Callable[..., Any]:
    """What a trial calls: a method is called on a new object, with new objects for what it takes."""
    if api.kind != "method":
        return look_up(api.name)

    def call(**arguments: None) -> Any:
        made = {name: look_up(_OBJECTS[name])() for name in arguments}
        return getattr(look_up(api.namespace)(), api.leaf)(**made)

    return call


def contract_trial(
    api: Api, function: Callable[..., Any], arguments: Arguments, place: str | None = None
) -> Trial:
    """Calls ``function`` for ``api``, with tensors on ``place``, and checks the type of its result."""
    outcome = run(function, arguments, "cuda", place)
    if outcome.exception:
        return Trial(1, (f"raises {outcome.exception}: {outcome.message}",), silent=False)
    documented = api.signatures[0].returns or ("bool" if _ANSWERS_YES_OR_NO.fullmatch(api.leaf) else "")
    if outcome.kind is None or _is_allowed(outcome.kind, documented):
        return Trial(1)
    return Trial(1, (f"gives {outcome.kind.__name__}, documented is {documented}",))


def _is_allowed(kind: type, documented: str) -> bool:
    """Whether a result of type ``kind`` is what the annotation says; of an unknown class, neither None nor a
    class can be an instance.
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
    """The types that a return annotation allows; None where it names one that is not known here."""
    found: list[type] = []
    for word in re.sub(r"\[.*\]", "", annotation.strip("'\"")).replace("torch.", "").split("|"):
        if word.strip() not in _TYPES:
            return None
        found += _TYPES[word.strip()]
    return tuple(found)
