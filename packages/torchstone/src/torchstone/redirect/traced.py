"""The mode's behavior in code that Dynamo traces, which inlines these few lines into the graph.

Devices are encoded as in :mod:`.places`; :mod:`.tracing` reads them from the finished graph.
"""

from __future__ import annotations

from typing import Any

import torch

from . import places
from .scope import Scope

_CPU = torch.device("cpu")


def traced(scope: Scope, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Make a call that becomes part of a graph: devices are mapped, and nothing is tracked yet."""
    if "device" in kwargs and kwargs["device"] is not None:
        kwargs["device"] = traced_device(scope, kwargs["device"])
    if kwargs.get("pin_memory") and not scope.target.can_pin:
        kwargs["pin_memory"] = False
    if func is torch.device:
        return func("cuda", args[0]) if len(args) == 1 and type(args[0]) is int else func(*args, **kwargs)
    if func is torch.Tensor.to and len(args) > 1:
        return func(args[0], traced_device(scope, args[1]), *args[2:], **kwargs)
    if func is torch.Tensor.cuda:
        return args[0].to(traced_device(scope, "cuda" if len(args) == 1 else args[1]))
    if func is torch.Tensor.cpu:
        return args[0].to(_CPU)
    if func is torch.Tensor.record_stream and scope.tracks:
        return None
    return func(*args, **kwargs)


def traced_device(scope: Scope, asked: Any) -> Any:
    """Return the target's device for ``asked``, as it is encoded in a graph (:mod:`.tracing`)."""
    if isinstance(asked, int) and not isinstance(asked, bool):
        asked = f"cuda:{asked}"
    if not isinstance(asked, str | torch.device):
        return asked
    text = str(asked)
    if not text.startswith("cuda"):
        return _CPU if text == "cpu" else asked
    if not scope.tracks:
        return scope.target.device(None)
    return places.device_of(int(text[5:]) if len(text) > 5 else scope.ordinal())
