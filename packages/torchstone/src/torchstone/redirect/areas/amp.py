"""Autocast and ``GradScaler``: the device type ``"cuda"`` means the target's device type.

Without a dtype, ``torch.autocast("cuda")`` uses the target's default dtype (bfloat16 on cpu).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..mirror import adapting
from ..rows import Row
from ..scope import Scope


def _map_type(name: str) -> Callable[[Any], Any]:
    """Return an ``around`` that maps the parameter ``name``, a device type, and passes everything else on."""

    def adapt(scope: Scope, arguments: dict[str, Any]) -> None:
        arguments[name] = _device_type(scope, arguments[name])

    return adapting(adapt)


def _device_type(scope: Scope, asked: Any) -> Any:
    return scope.target.type if isinstance(asked, str) and asked.partition(":")[0] == "cuda" else asked


def _map_optional_type(original: Any) -> Any:
    """Map the first argument of a builtin, a device type; if it is missing, pass the target's device type."""

    def implementation(scope: Scope, *args: Any, **kwargs: Any) -> Any:
        if args and isinstance(args[0], str):
            args = (_device_type(scope, args[0]), *args[1:])
        elif "device_type" in kwargs:
            kwargs = {**kwargs, "device_type": _device_type(scope, kwargs["device_type"])}
        else:
            args = (scope.target.type, *args)
        return original(*args, **kwargs)

    return implementation


def _gpu_dtype(scope: Scope) -> torch.dtype:
    return torch.get_autocast_dtype(scope.target.type)


def _set_gpu_dtype(scope: Scope, *args: Any) -> None:
    torch.set_autocast_dtype(scope.target.type, *args)


_NOTE = "the device type is mapped"

ROWS = (
    Row("torch.amp.autocast_mode.autocast.__init__", "wraps", _NOTE, around=_map_type("device_type")),
    Row("torch.amp.grad_scaler.GradScaler.__init__", "wraps", _NOTE, around=_map_type("device")),
    Row("torch.amp.is_autocast_available", "wraps", _NOTE, around=_map_type("device_type")),
    Row("torch.amp.custom_fwd", "wraps", _NOTE, around=_map_type("device_type")),
    Row("torch.amp.custom_bwd", "wraps", _NOTE, around=_map_type("device_type")),
    *(
        Row(f"torch.{name}", "wraps", _NOTE, around=_map_optional_type)
        for name in (
            "is_autocast_enabled",
            "get_autocast_dtype",
            "set_autocast_enabled",
            "set_autocast_dtype",
        )
    ),
    Row(
        "torch.get_autocast_gpu_dtype",
        "wraps",
        "the target's autocast dtype",
        lambda scope, *args: _gpu_dtype(scope),
    ),
    Row("torch.set_autocast_gpu_dtype", "wraps", "the target's autocast dtype", _set_gpu_dtype),
    Row("torch.cuda.amp", "wraps", "a module: its autocast and GradScaler are those of torch.amp"),
)
