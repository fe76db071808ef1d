"""Profiler activities, NVTX ranges, ``torch.cuda.profiler`` and the telemetry of the NVIDIA driver."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from torch.profiler import ProfilerActivity

from ...errors import RedirectUnsupported
from ...torch_internals.devices import private_backend_name
from ..mirror import Implementation, adapting
from ..rows import Row
from ..scope import Scope

_ACTIVITIES = {"xpu": ProfilerActivity.XPU}
_ranges = itertools.count(1)


def _activity(scope: Scope) -> ProfilerActivity | None:
    """Return the profiler's activity for the target; None if it has none of its own (cpu, mps)."""
    if scope.target.type == private_backend_name():
        return ProfilerActivity.PrivateUse1
    return _ACTIVITIES.get(scope.target.type)


def _map_profile(scope: Scope, arguments: dict[str, Any]) -> None:
    if arguments.get("use_cuda") is not None:
        arguments["use_cuda"] = None
    if arguments["activities"] is None:
        return
    own = _activity(scope)
    kept: list[Any] = []
    for item in arguments["activities"]:
        if isinstance(item, dict):
            item = {one: events for one, events in item.items() if one is not ProfilerActivity.CUDA}
        elif item is ProfilerActivity.CUDA:
            item = own
        if item and item not in kept:
            kept.append(item)
    arguments["activities"] = kept or [ProfilerActivity.CPU]


def _map_autograd_profile(scope: Scope, arguments: dict[str, Any]) -> None:
    if arguments["use_cuda"]:
        arguments["use_cuda"] = False
    if arguments["use_device"] == "cuda":
        arguments["use_device"] = None if _activity(scope) is None else scope.target.type


def _push(scope: Scope, msg: str) -> int:
    depth: int = scope.settings.get("nvtx_depth", 0)
    scope.settings["nvtx_depth"] = depth + 1
    return depth


def _pop(scope: Scope) -> int:
    depth: int = scope.settings.get("nvtx_depth", 0)
    scope.settings["nvtx_depth"] = max(depth - 1, 0)
    return depth - 1


def _start(scope: Scope, msg: str) -> int:
    return next(_ranges)


def _silent(scope: Scope, *args: Any) -> None:
    return None


def _no_driver(name: str, what: str) -> Callable[..., Any]:
    def implementation(scope: Scope, *args: Any, **kwargs: Any) -> Any:
        raise RedirectUnsupported(
            f"{name} has no meaning on the redirected device: {scope.target.type} has no {what}",
            hint="remove the call, or guard it: no value is made up for it",
        )

    return implementation


class _Runtime:
    """The result of ``torch.cuda.cudart()``: a profiler switch that does nothing; all else raises."""

    def cudaProfilerStart(self) -> int:
        return 0

    def cudaProfilerStop(self) -> int:
        return 0

    def __getattr__(self, name: str) -> Any:
        raise RedirectUnsupported(f"cudart().{name} has no meaning on the redirected device: no CUDA runtime")


def _cudart(scope: Scope) -> _Runtime:
    scope.policy.meaningless(
        "torch.cuda.cudart", "there is no CUDA runtime; only its profiler switch is accepted"
    )
    return _Runtime()


_TELEMETRY = {
    "utilization": "NVIDIA driver that tells its load",
    "temperature": "NVIDIA driver that tells its temperature",
    "power_draw": "NVIDIA driver that tells its power",
    "clock_rate": "NVIDIA driver that tells its clock",
    "memory_usage": "NVIDIA driver that tells its memory traffic",
    "device_memory_used": "NVIDIA driver that tells its memory in use",
    "list_gpu_processes": "NVIDIA driver that lists its processes",
    "current_blas_handle": "cuBLAS handle",
    "current_solver_handle": "cuSOLVER handle",
    "caching_allocator_alloc": "CUDA caching allocator",
    "caching_allocator_delete": "CUDA caching allocator",
    "change_current_allocator": "CUDA allocator that could be replaced",
    "CUDAPluggableAllocator.__init__": "CUDA allocator that could be replaced",
}
_NVTX: dict[str, Implementation] = {
    "range_push": _push,
    "range_pop": _pop,
    "range_start": _start,
    "range_end": _silent,
    "mark": _silent,
}
_PROFILERS = {
    "torch.profiler.profile": _map_profile,
    "torch.autograd.profiler.profile": _map_autograd_profile,
}

ROWS = (
    *(
        Row(
            f"torch.cuda.{name}",
            "raises",
            f"no {what}",
            _no_driver(f"torch.cuda.{name}", what),
            optional=True,
        )
        for name, what in _TELEMETRY.items()
    ),
    Row("torch.cuda.cudart", "modified", "the profiler's switch only, by policy; the rest raises", _cudart),
    Row(
        "torch.cuda.CUDAPluggableAllocator",
        "raises",
        "its constructor: no CUDA allocator that could be replaced",
    ),
    *(
        Row(f"torch.cuda.nvtx.{name}", "noop", "ranges are counted, not shown", one)
        for name, one in _NVTX.items()
    ),
    Row("torch.cuda.nvtx", "noop", "a module: its functions are redirected one by one"),
    *(
        Row(f"torch.cuda.profiler.{name}", "noop", "no NVIDIA profiler", _silent)
        for name in ("start", "stop")
    ),
    Row("torch.cuda.profiler", "noop", "a module: its functions are redirected one by one"),
    *(
        Row(f"{name}.__init__", "wraps", "CUDA's activity becomes the target's", around=adapting(adapt))
        for name, adapt in _PROFILERS.items()
    ),
)
