"""Records the calls of compiled parts, with graphs and inputs, to help find where a wrong value comes from.

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

    ``kind`` is forward, backward or inference. ``module`` is the functional graph before it was lowered, and
    ``inputs`` are the values of its placeholders. ``seed`` is the seed of the program's random numbers.
    """

    kind: str
    module: GraphModule
    inputs: list[Any]
    seed: torch.Tensor


_listeners: list[list[PartCall]] = []


@contextmanager
def calls_recorded() -> Iterator[list[PartCall]]:
    """Collect every call of the parts that are compiled inside the block."""
    calls: list[PartCall] = []
    _listeners.append(calls)
    try:
        yield calls
    finally:
        _listeners.remove(calls)


def is_watched() -> bool:
    """Whether the calls of a part that is compiled now would be recorded."""
    return bool(_listeners)


def compile_part(region: Region, static: Iterable[int] = ()) -> Run:
    """Compile ``region`` as a whole; its calls are recorded if :func:`calls_recorded` is active now."""
    if not is_watched():
        return CompiledPart(region, static)
    with without_modes():  # the constants include real tensors, which a trace with fake ones cannot copy
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
