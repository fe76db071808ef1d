"""Takes and restores the state of objects: modules, optimizers, generators of random numbers."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy
import torch

from ..errors import CheckpointMismatch, CheckpointUnstorable
from ..torch_internals import dynamo

SECTIONS = ("model", "optimizer", "scheduler", "scaler", "loader")
"""The names of the objects that have their own sections in a checkpoint."""


def present(model: Any, optimizer: Any, scheduler: Any, scaler: Any, loader: Any) -> dict[str, Any]:
    """Return the objects that are not None, by the names of their sections."""
    given = zip(SECTIONS, (model, optimizer, scheduler, scaler, loader), strict=True)
    return {name: one for name, one in given if one is not None}


def state_of(value: Any) -> Any:
    """Return the state of an object as plain values, or None if it has none.

    The state of a compiled module is that of the original module.
    """
    if isinstance(value, torch.Generator):
        return {"generator": value.get_state()}
    if isinstance(value, numpy.random.Generator):
        return {"numpy": value.bit_generator.state}
    if isinstance(value, random.Random):
        return {"python": value.getstate()}
    if isinstance(value, torch.utils.data.DataLoader) and not hasattr(value, "state_dict"):
        raise CheckpointUnstorable(
            "a DataLoader does not know how far it has come",
            hint="iterate over torchstone.checkpoint.ResumableLoader(loader), and save that",
        )
    if isinstance(value, type) or not callable(getattr(value, "state_dict", None)):
        return None
    return dynamo.uncompiled(value).state_dict()


def has_state(value: Any) -> bool:
    """Whether :func:`give_state` can give ``value`` a state."""
    generators = (torch.Generator, numpy.random.Generator, random.Random)
    return isinstance(value, generators) or callable(getattr(value, "load_state_dict", None))


def give_state(target: Any, state: Any, name: str) -> None:
    """Restore the state that :func:`state_of` returned, in an object or in each object of a dict or list.

    Raises :class:`CheckpointMismatch` if an object does not accept it.
    """
    if isinstance(target, Mapping) and not has_state(target):
        for key, one in target.items():
            give_state(one, state[key], f"{name}[{key!r}]")
        return
    if isinstance(target, list | tuple):
        for i, (one, part) in enumerate(zip(target, state, strict=True)):
            give_state(one, part, f"{name}[{i}]")
        return
    try:
        if isinstance(target, torch.Generator):
            target.set_state(state["generator"])
        elif isinstance(target, numpy.random.Generator):
            target.bit_generator.state = state["numpy"]
        elif isinstance(target, random.Random):
            target.setstate(state["python"])
        elif isinstance(module := dynamo.uncompiled(target), torch.nn.Module):
            module.load_state_dict(state, strict=False)  # the caller has accepted that entries are missing
        else:
            target.load_state_dict(state)
    except (ValueError, TypeError, LookupError, RuntimeError, AttributeError) as error:
        raise CheckpointMismatch(
            f"the {type(target).__name__} {name} does not take the state in the checkpoint: {error}",
            hint="make it as it was made when the checkpoint was saved",
        ) from error


def random_state() -> dict[str, Any]:
    """Return the state of the global generators of torch (CPU and accelerator in use), NumPy and Python."""
    state: dict[str, Any] = {
        "torch": torch.get_rng_state(),
        "numpy": numpy.random.get_state(legacy=False),
        "python": random.getstate(),
    }
    device = _accelerator()
    if device is not None:
        state["accelerator"] = {"type": device[0], "states": list(device[1].get_rng_state_all())}
    return state


def give_random_state(state: Mapping[str, Any]) -> None:
    """Set the global generators to a :func:`random_state`; skip accelerators that this process lacks."""
    torch.set_rng_state(state["torch"].clone())
    numpy.random.set_state(state["numpy"])
    random.setstate(state["python"])
    device, saved = _accelerator(), state.get("accelerator")
    if device is not None and saved is not None and saved["type"] == device[0]:
        count = device[1].device_count()
        device[1].set_rng_state_all([one.clone() for one in saved["states"][:count]])


def _accelerator() -> tuple[str, Any] | None:
    """Return the type and module of the accelerator in use, if the state of its generators can be read."""
    device = torch.accelerator.current_accelerator(check_available=True)
    if device is None:
        return None
    module = torch.get_device_module(device)
    in_use = getattr(module, "is_initialized", lambda: True)()
    return (device.type, module) if in_use and hasattr(module, "get_rng_state_all") else None
