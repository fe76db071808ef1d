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
from .arguments import argument_sets
from .outcomes import run
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


def contract_trials(
    apis: Iterable[Api], inside: Callable[[], AbstractContextManager[Any]]
) -> Mapping[str, Trial]:
    """Calls each function with what it requires, within ``inside()``, and checks the type of its result."""
    chosen = [
        api
        for api in apis
        if api.kind == "function" and callable_safely(api) and not _NOT_CALLED.fullmatch(api.name)
    ]
    with inside():
        return {api.name: _trial(api) for api in chosen}


def _trial(api: Api) -> Trial:
    arguments = next(argument_sets(api.signatures))
    outcome = run(resolve(api.name), arguments, "cuda")
    if outcome.exception:
        return Trial(1, (f"raises {outcome.exception}: {outcome.message}",), silent=False)
    documented = api.signatures[0].returns or ""
    allowed = expected_types(documented)
    if outcome.kind is None or allowed is None or issubclass(outcome.kind, allowed):
        return Trial(1)
    return Trial(1, (f"gives {outcome.kind.__name__}, documented is {documented}",))


def expected_types(annotation: str) -> tuple[type, ...] | None:
    """The types that a return annotation allows; None where it names one that is not known here."""
    found: list[type] = []
    for word in re.sub(r"\[.*\]", "", annotation.strip("'\"")).replace("torch.", "").split("|"):
        if word.strip() not in _TYPES:
            return None
        found += _TYPES[word.strip()]
    return tuple(found)
