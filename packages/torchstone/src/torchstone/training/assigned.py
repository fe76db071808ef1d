"""Buffers that code of a step puts in place of those that modules have.

One of the same form is written over the one that it replaces. One of another form, or where there was none,
is an output of the program, which the module then has, and the next step is a program for that form.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from ..errors import CaptureError
from ..torch_internals.tensors import members
from .overlay import Overlay
from .state import State

Tensor = torch.Tensor

Place = tuple[dict[str, Any], str, bool]
"""The dict of a module's buffers, a name in it, and whether there is a tensor now; else there is None."""


def assigned_buffers(
    state: State, shown: Mapping[int, Overlay], traced: Mapping[int, Tensor]
) -> tuple[list[Place], list[Tensor]]:
    """Write buffers that were assigned over those before, in a trace; the places of others, and their values.

    ``shown`` has the modules' parameters and buffers by the identity of the real dicts, ``traced`` the
    tensors of the trace by that of the real ones. Raises :class:`CaptureError` where a parameter was
    assigned, or a buffer deleted.
    """
    overlays = {id(one): one for one in shown.values()}
    uses = Counter(id(value) for one in shown.values() for value in one.real.values())
    places: list[Place] = []
    values: list[Tensor] = []
    for _, module in state.modules:
        parameters, buffers = (overlays[id(own)] for own in members(module))
        for name, _, _ in _changed(parameters, traced):
            raise CaptureError(
                f"the step puts another parameter in place of {type(module).__name__}.{name}",
                hint="write into the parameter, under torch.no_grad(), or change the module before the step",
            )
        for name, before, now in _changed(buffers, traced):
            if name not in buffers.now:
                raise CaptureError(
                    f"the step deletes the buffer {type(module).__name__}.{name}",
                    hint="set it to None, or delete it before the step",
                )
            if _alike(before, now) and uses[id(before)] == 1:
                traced[id(before)].copy_(now)
                continue
            places.append((buffers.real, name, now is not None))
            values += [] if now is None else [now.detach().clone()]
    return places, values


def _changed(overlay: Overlay, traced: Mapping[int, Tensor]) -> Iterator[tuple[str, Any, Any]]:
    """Names with what was there before and what is there now, where that is something else."""
    for name in {**overlay.real, **overlay.now}:
        before, now = overlay.real.get(name), overlay.now.get(name)
        missing = (name in overlay.now) != (name in overlay.real)
        if missing or not (now is before or now is traced.get(id(before), before)):
            yield name, before, now


def _alike(before: Any, now: Any) -> bool:
    tensors = isinstance(before, Tensor) and isinstance(now, Tensor)
    return tensors and before.shape == now.shape and before.dtype == now.dtype
