"""The calls of compiled parts, recorded with their graphs and inputs, for those who look for a wrong value.

Nothing is recorded, copied or slowed down unless :func:`calls_recorded` is active while a part is compiled.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule

from ..torch_internals.dispatch import without_modes
from .part import CompiledPart, Run, draw_seed
from .passes import Region


@dataclass(frozen=True)
class PartCall:
    """One call of a compiled part.

    ``kind`` is forward, backward or inference; ``module`` is the functional graph before it was lowered;
    ``inputs`` belong to its placeholders; ``seed`` is what the program drew its random numbers from.
    """

    kind: str
    module: GraphModule
    inputs: list[Any]
    seed: torch.Tensor


_listeners: list[list[PartCall]] = []


@contextmanager
def calls_recorded() -> Iterator[list[PartCall]]:
    """Collects every call of the parts that are compiled inside the block."""
    calls: list[PartCall] = []
    _listeners.append(calls)
    try:
        yield calls
    finally:
        _listeners.remove(calls)


def is_watched() -> bool:
    """Whether the calls of parts that are compiled now are recorded."""
    return bool(_listeners)


def compile_part(region: Region, static: Iterable[int] = ()) -> Run:
    """``region`` compiled as a whole; its calls are recorded if anyone listens now."""
    if not is_watched():
        return CompiledPart(region, static)
    with without_modes():  # tensors among the constants are real ones, in a trace of fake ones
        module = copy.deepcopy(region.module)
    kind, listeners = region.record.kind, list(_listeners)
    part = CompiledPart(region, static)

    def run(inputs: list[Any]) -> list[Any]:
        state = torch.get_rng_state()
        seed = draw_seed()
        torch.set_rng_state(state)
        given = [one.detach().clone() if isinstance(one, torch.Tensor) else one for one in inputs]
        for calls in listeners:
            calls.append(PartCall(kind, module, given, seed))
        return part(inputs)

    return run
