"""Refuses random numbers that do not come from PyTorch's default generator: a program would repeat them.

Functions of ``random`` and ``numpy.random`` return Python numbers, which become part of the program. Draws
after a seed that the step itself sets are allowed, because they are the same in every step. Generators that
are objects are handled in :mod:`.generators`.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import torch

from ..compiler.graphs import is_users_file
from ..torch_internals.patches import Patch, functions
from .refusals import Refused

_SEEDS = ("seed", "set_state", "setstate")
_KEPT = ("getstate", "get_state", "get_bit_generator", "set_bit_generator")
DRAW = (
    "draw with PyTorch (torch.rand, torch.randperm), or draw before the step and give the number as part of "
    "the batch"
)


def without_foreign_randomness() -> Iterator[Patch]:
    """Yield patches by which random functions raise :class:`Refused` if the user's code calls them."""
    numpy = sys.modules.get("numpy.random")
    for module in (random, numpy) if numpy is not None else (random,):
        yield _module(module)
    for module in (torch, torch.random):
        yield functions(module, **{name: _seeding(name) for name in ("manual_seed", "set_rng_state")})


def refuse_generator(leaves: list[Any]) -> None:
    """Raise :class:`Refused` if an operator draws from a generator other than PyTorch's default one."""
    if any(isinstance(one, torch.Generator) and one is not torch.default_generator for one in leaves):
        raise Refused(
            "code of the step draws from a generator of its own",
            "leave generator= out: a step draws from PyTorch's default generator, and torch.manual_seed "
            "before it repeats it",
        )


def _module(module: ModuleType) -> Patch:
    """Patch the functions of a module's hidden generator: they draw only after the user's code set a seed."""
    seeded: list[str] = []

    def seed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **kwargs: Any) -> Any:
            if _is_users_call():
                seeded.append(name)
            return function(*args, **kwargs)

        return called

    def draw(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **kwargs: Any) -> Any:
            if not seeded and _is_users_call():
                raise Refused(
                    f"code of the step draws with {module.__name__}.{name} while the step is traced, and "
                    "every step would have the same numbers",
                    DRAW,
                )
            return function(*args, **kwargs)

        return called

    hidden = type(getattr(module.random, "__self__", None))
    methods = {
        name: one for name, one in vars(module).items() if type(getattr(one, "__self__", None)) is hidden
    }
    draws = {name: draw(name, one) for name, one in methods.items() if name not in _KEPT and name[0] != "_"}
    if hasattr(module, "default_rng"):
        draws["default_rng"] = _new_generator(module.default_rng)
    seeds = {name: seed(name, getattr(module, name)) for name in _SEEDS if hasattr(module, name)}
    return functions(module, **{**draws, **seeds})


def _new_generator(function: Callable[..., Any]) -> Callable[..., Any]:
    def called(seed: Any = None) -> Any:
        if seed is None and _is_users_call():
            raise Refused(
                "code of the step makes a generator without a seed while the step is traced, and every step "
                "would have the same numbers",
                DRAW,
            )
        return function(seed)

    return called


def _seeding(name: str) -> Callable[..., Any]:
    function = getattr(torch.random, name)

    def called(*args: Any, **kwargs: Any) -> Any:
        if _is_users_call():
            raise Refused(
                f"code of the step calls torch.{name}, which changes nothing of what a step draws",
                "call it before the step, which repeats the step's random numbers",
            )
        return function(*args, **kwargs)

    return called


def _is_users_call() -> bool:
    """Whether the user's code calls the function whose stand-in calls this."""
    return is_users_file(sys._getframe(3).f_code.co_filename)
