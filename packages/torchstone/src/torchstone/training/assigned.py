"""Buffers that code of a step assigns to modules in place of the ones they have.

A new buffer of the same shape and dtype is written over the one that it replaces. Any other new buffer is an
output of the program. The module gets it after the step, and the next step needs a program for the new form.
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
"""The dict of a module's buffers, a name in it, and whether the new value is a tensor (otherwise None)."""


def assigned_buffers(
    state: State, shown: Mapping[int, Overlay], traced: Mapping[int, Tensor]
) -> tuple[list[Place], list[Tensor]]:
    """Write assigned buffers over the old ones, in a trace, and return the places and values of all others.

    ``shown`` holds the modules' parameters and buffers by the identity of the real dicts. ``traced`` holds
    the tensors of the trace by the identity of the real tensors. Raises :class:`CaptureError` if the step
    assigned a parameter or deleted a buffer.
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
    """Yield each name whose value has changed, with the old value and the new one."""
    for name in {**overlay.real, **overlay.now}:
        before, now = overlay.real.get(name), overlay.now.get(name)
        missing = (name in overlay.now) != (name in overlay.real)
        if missing or not (now is before or now is traced.get(id(before), before)):
            yield name, before, now


def _alike(before: Any, now: Any) -> bool:
    tensors = isinstance(before, Tensor) and isinstance(now, Tensor)
    return tensors and before.shape == now.shape and before.dtype == now.dtype
