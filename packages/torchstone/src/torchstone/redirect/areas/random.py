"""``torch.cuda``'s random number functions and ``torch.Generator``: they use the target's own generators."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import torch

from ...torch_internals.devices import mps_generator
from ...torch_internals.redirection import break_graph
from .. import places
from ..drawing import CudaGenerator, generator_of
from ..mirror import Implementation, adapting
from ..rows import Row
from ..scope import Scope, current_scope
from .classes import stand_in

_SEED_BITS = 63


def get_state(scope: Scope, device: Any) -> torch.Tensor:
    place = scope.place(scope.ordinal(device))
    if scope.tracks:
        return _generator(scope, device).get_state()
    if scope.target.type == "mps":
        return torch.mps.get_rng_state()
    found: torch.Tensor = scope.target.module.get_rng_state(place)
    return found


def set_state(scope: Scope, new_state: torch.Tensor, device: Any) -> None:
    place = scope.place(scope.ordinal(device))
    if scope.tracks:
        _generator(scope, device).set_state(new_state)
    elif scope.target.type == "mps":
        torch.mps.set_rng_state(new_state)
    else:
        scope.target.module.set_rng_state(new_state, place)


def _states(scope: Scope) -> list[torch.Tensor]:
    return [get_state(scope, index) for index in range(len(scope.target.indices))]


def _set_states(scope: Scope, new_states: Iterable[torch.Tensor]) -> None:
    for index, state in enumerate(new_states):
        set_state(scope, state, index)


def _manual_seed(scope: Scope, seed: int) -> None:
    if scope.tracks:
        _generator(scope, None).manual_seed(int(seed))
    else:
        scope.target.module.manual_seed(int(seed))


def _manual_seed_all(scope: Scope, seed: int) -> None:
    if scope.tracks:
        for index in range(len(scope.target.indices)):
            _generator(scope, index).manual_seed(int(seed))
        return
    every = getattr(scope.target.module, "manual_seed_all", None)
    if every is None:
        _manual_seed(scope, seed)
    else:
        every(int(seed))


def _seed(scope: Scope) -> None:
    _manual_seed(scope, random.SystemRandom().getrandbits(_SEED_BITS))


def _seed_all(scope: Scope) -> None:
    _manual_seed_all(scope, random.SystemRandom().getrandbits(_SEED_BITS))


def _initial_seed(scope: Scope) -> int:
    return int(_generator(scope, None).initial_seed() if scope.tracks else scope.target.module.initial_seed())


def _generator(scope: Scope, device: Any) -> torch.Generator:
    if torch.compiler.is_dynamo_compiling():
        break_graph()  # Dynamo cannot trace the methods of a generator
    return generator_of(scope.ordinal(device))


class _Generators:
    """``torch.cuda.default_generators``: the target's generators, looked up at each access."""

    def _all(self) -> tuple[torch.Generator, ...]:
        scope = current_scope()
        if scope is None:
            return ()
        if scope.tracks:
            return tuple(map(generator_of, range(len(scope.target.indices))))
        if scope.target.type == "mps":
            return (mps_generator(),)
        return tuple(getattr(scope.target.module, "default_generators", ()))

    def __getitem__(self, index: int) -> torch.Generator:
        return self._all()[index]

    def __len__(self) -> int:
        return len(self._all())


def _place_generator(scope: Scope, *args: Any, **kwargs: Any) -> torch.Generator:
    """Make a generator on the mapped device; if the target has no generators, return a CPU one, by policy."""
    asked = args[0] if args else kwargs.get("device", "cpu")
    if scope.tracks:
        place = places.place_of_device(places.parsed(scope.place(asked)))
        if place is not None and place != places.HOST:
            return CudaGenerator(place)
    try:
        return _GENERATOR(device=scope.place(asked))
    except NotImplementedError:
        scope.policy.meaningless(
            "torch.Generator", f"{scope.target.type} makes no generators; one of the CPU's is returned"
        )
        return _GENERATOR()


_GENERATOR = torch.Generator


def _map_fork_rng(scope: Scope, arguments: dict[str, Any]) -> None:
    """``fork_rng(devices=[0])``: map the devices; on cpu, PyTorch's code calls redirected functions."""
    if arguments["device_type"] not in (None, "cuda") or scope.tracks:
        return
    arguments["device_type"] = scope.target.type
    if arguments["devices"] is not None:
        arguments["devices"] = [scope.place(device).index for device in arguments["devices"]]


_FUNCTIONS: dict[str, Implementation] = {
    "get_rng_state": get_state,
    "get_rng_state_all": _states,
    "set_rng_state": set_state,
    "set_rng_state_all": _set_states,
    "manual_seed": _manual_seed,
    "manual_seed_all": _manual_seed_all,
    "seed": _seed,
    "seed_all": _seed_all,
    "initial_seed": _initial_seed,
}

ROWS = (
    *(Row(f"torch.cuda.{name}", "wraps", "the target's generator", one) for name, one in _FUNCTIONS.items()),
    Row(
        "torch.cuda.default_generators",
        "wraps",
        "the target's default generators",
        replacement=lambda original: _Generators(),
    ),
    Row("torch.cuda.random", "wraps", "a module: its functions are redirected one by one"),
    Row(
        "torch.Generator",
        "wraps",
        "makes a generator of the target",
        replacement=lambda original: stand_in(original, _place_generator),
    ),
    Row("torch.random.fork_rng", "wraps", "saves the target's generators", around=adapting(_map_fork_rng)),
)
