"""Restores the state of several objects, or of none: if one refuses its state, the others keep theirs."""

from __future__ import annotations

import contextlib
import copy
import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy
import torch

from ..errors import CheckpointMismatch
from ..torch_internals import dynamo
from ..torch_internals.tensors import may_refuse_state
from .resuming import ResumableLoader
from .states import give_random_state, give_state, has_state, random_state, state_of

Undo = Callable[[], None]


def give_all(targets: Mapping[str, Any], states: Mapping[str, Any], generators: Any) -> None:
    """Restore the states of ``targets``, and of the global random generators unless ``generators`` is None.

    Models come last: the others may refuse a state, and a model that has been compared with it does not.
    Raises :class:`CheckpointMismatch` after giving back to all of them the state that they had.
    """
    undo = [one for target in targets.values() for one in _kept(target)]
    if generators is not None:
        before = random_state()
        undo.append(lambda: give_random_state(before))
    try:
        _give_generators(generators)  # loading may use random numbers, so this is repeated at the end
        for name in sorted(targets, key=lambda name: name == "model"):
            give_state(targets[name], states[name], name)
        _give_generators(generators)
    except BaseException:
        for one in undo:
            with contextlib.suppress(Exception):  # the first error says what is wrong
                one()
        raise


def _give_generators(state: Any) -> None:
    if state is None:
        return
    try:
        give_random_state(state)
    except (ValueError, TypeError, LookupError, RuntimeError, AttributeError) as error:
        raise CheckpointMismatch(
            f"the random generators do not take the state in the checkpoint: {error}",
            hint="pass rng=False to leave them as they are",
        ) from error


def _kept(target: Any) -> list[Undo]:
    """Return functions that give ``target``, or each object in it, the state that it has now."""
    if isinstance(target, Mapping) and not has_state(target):
        return [undo for one in target.values() for undo in _kept(one)]
    if isinstance(target, list | tuple):
        return [undo for one in target for undo in _kept(one)]
    if isinstance(target, torch.Generator | numpy.random.Generator | random.Random):
        state = copy.deepcopy(state_of(target))
        return [lambda: give_state(target, state, "generator")]
    module = dynamo.uncompiled(target)
    if isinstance(module, torch.nn.Module):
        return [_module_kept(module)] if may_refuse_state(module) else []
    undo: list[Undo] = []
    if not isinstance(target, torch.optim.Optimizer) and not _starts_workers(target):
        with contextlib.suppress(Exception):
            held = copy.deepcopy(target.state_dict())
            undo.append(lambda: target.load_state_dict(held))
    attributes = dict(getattr(target, "__dict__", {}))
    if attributes:  # an optimizer makes new containers for a new state: its old ones are still as they were
        undo.append(lambda: vars(target).update(attributes))
    return undo


def _starts_workers(target: Any) -> bool:
    """Whether ``target`` may be a loader whose ``state_dict`` starts to iterate."""
    return isinstance(target, Iterable) and not isinstance(target, ResumableLoader)


def _module_kept(module: torch.nn.Module) -> Undo:
    held = copy.deepcopy(module.state_dict())

    def undo() -> None:
        with contextlib.suppress(Exception):
            module.load_state_dict(held, strict=False)
        with torch.no_grad():
            for name, one in module.state_dict().items():
                if isinstance(one, torch.Tensor) and not torch.nn.parameter.is_lazy(one) and name in held:
                    one.copy_(held[name])

    return undo
