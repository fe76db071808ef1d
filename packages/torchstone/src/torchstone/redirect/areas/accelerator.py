"""``torch.accelerator`` and ``torch.get_device_module``: CUDA is the accelerator of redirected code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...torch_internals import redirection
from .. import places
from ..rows import Row
from ..scope import Scope, told_of_cuda
from .streams import current_stream

_CUDA = places.parsed("cuda")


def _tracked(own: Callable[..., Any]) -> Callable[[Any], Callable[..., Any]]:
    """Return an ``around`` that calls ``own`` if tensors are tracked, else the original."""

    def around(original: Any) -> Callable[..., Any]:
        def implementation(scope: Scope, *args: Any, **kwargs: Any) -> Any:
            return own(scope, *args, **kwargs) if scope.tracks else original(*args, **kwargs)

        return implementation

    return around


def _available(scope: Scope) -> bool:
    return bool(scope.target.indices)


def _current(scope: Scope, check_available: bool = False) -> torch.device | None:
    return _CUDA if _available(scope) or not check_available else None


def _as_cuda(name: str) -> Callable[..., Any]:
    """Return an implementation that calls the redirected ``torch.cuda`` function ``name``."""

    def implementation(scope: Scope, *args: Any, **kwargs: Any) -> Any:
        return getattr(torch.cuda, name)(*args, **kwargs)

    return implementation


def _capability(scope: Scope, device: Any = None) -> dict[str, Any]:
    scope.ordinal(device)
    scope.policy.meaningless(
        "torch.accelerator.get_device_capability", "the target lists no dtypes; an empty set is returned"
    )
    return {"supported_dtypes": set()}


def _enter_index(scope: Scope, self: Any) -> None:
    if self.idx is not None:
        self.prev_idx = redirection.exchange_device(self.idx)


def _exit_index(scope: Scope, self: Any, *error: object) -> None:
    if self.idx is not None:
        redirection.maybe_exchange_device(self.prev_idx)


def _around_module(original: Any) -> Any:
    def implementation(scope: Scope, device: Any = None) -> Any:
        if not scope.tracks:
            return original(device)
        asked = "cuda" if device is None else str(device)
        if asked.partition(":")[0] == "cuda" and (device is not None or told_of_cuda(scope)):
            return torch.cuda
        return original(device)

    return implementation


def _around_current_stream(original: Any) -> Callable[..., Any]:
    """Use the scope's current stream, except in code that Dynamo traces, where Dynamo knows the stream."""

    def implementation(scope: Scope, *args: Any) -> Any:
        if not scope.tracks or torch.compiler.is_dynamo_compiling():
            return original(*(one for one in args if one is not None))
        return current_stream(scope, *args)

    return implementation


_SAME = {
    "device_count": "device_count",
    "current_device_index": "current_device",
    "current_device_idx": "current_device",
    "set_device_index": "set_device",
    "set_device_idx": "set_device",
    "set_stream": "set_stream",
    "synchronize": "synchronize",
    **{
        f"memory.{name}": name
        for name in (
            *("empty_cache", "memory_stats", "memory_allocated", "max_memory_allocated", "memory_reserved"),
            *("max_memory_reserved", "reset_accumulated_memory_stats", "reset_peak_memory_stats"),
        )
    },
    "memory.get_memory_info": "mem_get_info",
}
_STREAMS = ("set_stream", "synchronize")
"""Functions that compiled code calls through PyTorch's own code, and only if it has a stream."""
_AS_CUDA = "as torch.cuda answers, for callers that are told of CUDA"

_ANSWERS: dict[str, Callable[..., Any]] = {
    "is_available": _available,
    "current_accelerator": _current,
    "get_device_capability": _capability,
    **{name: _as_cuda(own) for name, own in _SAME.items()},
}

ROWS = (
    *(
        Row(
            f"torch.accelerator.{name}",
            "wraps",
            _AS_CUDA,
            around=_tracked(own),
            by_caller=name not in _STREAMS,
            optional=True,
        )
        for name, own in _ANSWERS.items()
    ),
    Row("torch.accelerator.current_stream", "wraps", "as torch.cuda answers", around=_around_current_stream),
    Row(
        "torch.accelerator.device_index.__enter__",
        "wraps",
        "selects the device",
        around=_tracked(_enter_index),
        optional=True,
    ),
    Row(
        "torch.accelerator.device_index.__exit__",
        "wraps",
        "selects the device before",
        around=_tracked(_exit_index),
        optional=True,
    ),
    Row("torch.get_device_module", "wraps", "cuda's module is torch.cuda", around=_around_module),
)
