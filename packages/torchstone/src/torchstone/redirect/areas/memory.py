"""``torch.cuda.memory``: the target's own figures; if it has none, the policy applies.

An accelerator answers through its module or ``torch.accelerator``. The ``cpu`` target has no caching
allocator; its figures are the bytes of the tensors that the script has on each device (:mod:`..places`), and
nothing is reserved beyond them. A figure is never invented.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import torch

from ...errors import RedirectUnsupported
from ...torch_internals.devices import DUMP_MEMORY_SNAPSHOT, RECORD_MEMORY_HISTORY
from .. import places
from ..mirror import Implementation
from ..rows import Row
from ..scope import Scope
from . import host
from .classes import shadow

_TRACKED = {
    "memory_allocated": "bytes",
    "memory_reserved": "bytes",
    "max_memory_allocated": "bytes_peak",
    "max_memory_reserved": "bytes_peak",
}
_STATISTICS = {
    "allocated_bytes.all.current": "memory_allocated",
    "allocated_bytes.all.peak": "max_memory_allocated",
    "reserved_bytes.all.current": "memory_reserved",
    "reserved_bytes.all.peak": "max_memory_reserved",
}
_OLD_NAMES = {"memory_cached": "memory_reserved", "max_memory_cached": "max_memory_reserved"}
_RESETS = {
    "reset_peak_memory_stats": "reset_peak_memory_stats",
    "reset_max_memory_allocated": "reset_peak_memory_stats",
    "reset_max_memory_cached": "reset_peak_memory_stats",
    "reset_accumulated_memory_stats": "reset_accumulated_memory_stats",
}


def _native(scope: Scope, name: str, device: Any) -> Any:
    """Return the result of ``name`` in the target's module or ``torch.accelerator``; None if both lack it."""
    return next(_answers(scope, name, device), None)


def _call_native(scope: Scope, name: str, device: Any) -> bool:
    """Call ``name`` on the target's module or ``torch.accelerator``; return whether one of them could."""
    return not scope.tracks and any(True for _ in _answers(scope, name, device))


def _answers(scope: Scope, name: str, device: Any) -> Iterator[Any]:
    index = scope.place(scope.ordinal(device)).index
    for module in (scope.target.module, torch.accelerator.memory):
        function = getattr(module, name, None)
        if function is not None:
            with contextlib.suppress(RuntimeError):
                yield function(index)


def _figure(name: str) -> Callable[[Scope, Any], int]:
    # device has a default: the deprecated names are mirrored as (*args, **kwargs), which have none
    def implementation(scope: Scope, device: Any = None) -> int:
        if scope.tracks:
            return int(getattr(places.ACCOUNTS[scope.ordinal(device)].all, _TRACKED[name]))
        found = _native(scope, name, device)
        if found is None:
            scope.policy.meaningless(
                f"torch.cuda.{name}", f"{scope.target.type} does not count this; 0 is returned"
            )
            return 0
        return int(found)

    return implementation


def _reset(name: str) -> Callable[[Scope, Any], None]:
    def implementation(scope: Scope, device: Any = None) -> None:
        if scope.tracks:
            for _, pool in places.ACCOUNTS[scope.ordinal(device)].pools():
                pool.reset_ever() if "accumulated" in name else pool.reset_peak()
            return
        if not _call_native(scope, name, device):
            why = f"{scope.target.type} has no figures that could be reset"
            scope.policy.meaningless(f"torch.cuda.{name}", why)

    return implementation


def _memory_stats(scope: Scope, device: Any) -> dict[str, Any]:
    if scope.tracks:
        return _tracked_stats(scope.ordinal(device))
    found = _native(scope, "memory_stats", device)
    if found:
        return OrderedDict(found)
    return OrderedDict((key, _figure(name)(scope, device)) for key, name in _STATISTICS.items())


def _tracked_stats(index: int) -> OrderedDict[str, int]:
    """Return the figures under CUDA's keys; nothing is cached, so a segment is a block, and none is split."""
    stats: dict[str, int] = dict.fromkeys(_NEVER, 0)
    for metric, of_bytes in _COUNTED.items():
        for pool, blocks in places.ACCOUNTS[index].pools():
            for when, figure in blocks.figures(of_bytes):
                stats[f"{metric}.{pool}.{when}"] = 0 if metric.startswith("inactive") else figure
    return OrderedDict(sorted(stats.items()))


_COUNTED = {
    **dict.fromkeys(("allocation", "active", "segment", "inactive_split"), False),
    **dict.fromkeys(
        ("allocated_bytes", "active_bytes", "reserved_bytes", "requested_bytes", "inactive_split_bytes"), True
    ),
}
"""The names of CUDA's metrics, and whether each counts bytes."""
_NEVER = (
    *("num_alloc_retries", "num_ooms", "num_sync_all_streams", "num_device_alloc", "num_device_free"),
    *(
        f"{kind}.{when}"
        for kind in ("oversize_allocations", "oversize_segments")
        for when in ("current", "peak", "allocated", "freed")
    ),
)
"""Keys of events that never happen without a caching allocator, so they are always 0."""


def _nested_memory_stats(scope: Scope, device: Any) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for key, value in _memory_stats(scope, device).items():
        *path, last = key.split(".")
        inner = nested
        for part in path:
            inner = inner.setdefault(part, {})
        inner[last] = value
    return nested


def _around_summary(original: Any) -> Any:
    """Return PyTorch's own table if all its figures are counted, else a list of the known figures."""

    def implementation(scope: Scope, device: Any, abbreviated: bool) -> str:
        if scope.tracks:
            return str(original(scope.ordinal(device), abbreviated))
        figures = _memory_stats(scope, device).items()
        return "\n".join(
            [f"memory of {scope.target} (redirected)", *(f"  {name}: {value}" for name, value in figures)]
        )

    return implementation


def free_and_total(scope: Scope, device: Any) -> tuple[int, int] | None:
    """Return the free and the total bytes of a device; None if the target does not report them."""
    if scope.tracks:
        free, total = host.available_memory(), host.total_memory()
        return None if free is None or total is None else (free, total)
    found = _native(scope, "mem_get_info", device) or _native(scope, "get_memory_info", device)
    return None if found is None else (int(found[0]), int(found[1]))


def _mem_get_info(scope: Scope, device: Any) -> tuple[int, int]:
    found = free_and_total(scope, device)
    if found is None:
        raise RedirectUnsupported(
            f"torch.cuda.mem_get_info: {scope.target.type}, the redirected device, does not tell its memory",
            hint="remove the call, or guard it",
        )
    return found


def _empty_cache(scope: Scope) -> None:
    function = getattr(scope.target.module, "empty_cache", None)
    if function is not None:
        function()


def _get_fraction(scope: Scope, device: Any) -> float:
    found = _native(scope, "get_per_process_memory_fraction", device)
    return float(scope.settings.get("memory_fraction", 1.0) if found is None else found)


def _set_fraction(scope: Scope, fraction: float, device: Any) -> None:
    if not isinstance(fraction, float):
        raise TypeError("Invalid type for fraction argument, must be `float`")
    if not 0 <= fraction <= 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
    scope.ordinal(device)
    function = getattr(scope.target.module, "set_per_process_memory_fraction", None)
    if function is not None:
        function(fraction)
        return
    scope.policy.meaningless(
        "torch.cuda.set_per_process_memory_fraction", "the target's memory cannot be limited"
    )
    scope.settings["memory_fraction"] = fraction


@contextlib.contextmanager
def _no_pool(scope: Scope, pool: Any, device: Any = None) -> Iterator[None]:
    scope.policy.meaningless(
        "torch.cuda.use_mem_pool", "the target has no memory pools; its own allocator is used"
    )
    yield


@contextlib.contextmanager
def _caching_stays(scope: Scope) -> Iterator[None]:
    scope.policy.meaningless("torch.cuda.caching_allocator_disabled", "the target's allocator stays as it is")
    yield


def _init_pool(scope: Scope, self: Any, allocator: Any, use_on_oom: bool, no_split: bool) -> None:
    scope.policy.meaningless("torch.cuda.MemPool", "the target has no memory pools; the object does nothing")
    self._torchstone_id, self.allocator = (0, next(_POOLS)), allocator


def _pool_id(scope: Scope, self: Any) -> tuple[int, int]:
    found: tuple[int, int] = self._torchstone_id
    return found


def _use_count(scope: Scope, self: Any) -> int:
    return 1


_POOLS = itertools.count(1)
_OF_POOL: dict[str, Implementation] = {
    "__init__": _init_pool,
    "id": _pool_id,
    "use_count": _use_count,
}


def _snapshot(scope: Scope, mempool_id: Any, include_traces: bool) -> list[Any]:
    scope.policy.meaningless(
        "torch.cuda.memory_snapshot", "the target keeps no list of its blocks; it is empty"
    )
    return []


def _says(name: str, why: str, result: Callable[[], Any]) -> Callable[..., Any]:
    """Return an implementation that tells the policy why ``name`` is meaningless and returns ``result()``."""

    def implementation(scope: Scope, *args: Any, **kwargs: Any) -> Any:
        scope.policy.meaningless(name, why)
        return result()

    return implementation


def _cuda(name: str) -> str:
    return f"torch.cuda.{name}"


def _record_history(scope: Scope, enabled: Any = "all", *args: Any, **kwargs: Any) -> None:
    scope.policy.meaningless(RECORD_MEMORY_HISTORY, _NO_HISTORY)


def _dump_history(scope: Scope, filename: Any, *args: Any) -> None:
    scope.policy.meaningless(DUMP_MEMORY_SNAPSHOT, f"{_NO_HISTORY}, no file is written")


_NO_HISTORY = "the target keeps no history of its blocks"
_FIGURE = "the target's own figure; on cpu, the bytes of the script's tensors on the device"
_NO_HOST = "the target has no cache of pinned memory"

ROWS = (
    *(Row(_cuda(name), "modified", _FIGURE, _figure(name)) for name in _TRACKED),
    *(Row(_cuda(old), "modified", _FIGURE, _figure(new)) for old, new in _OLD_NAMES.items()),
    *(
        Row(_cuda(name), "wraps", "the target's own counters, or the policy", _reset(new))
        for name, new in _RESETS.items()
    ),
    Row(_cuda("memory_stats"), "modified", "the target's own figures; fewer of them on cpu", _memory_stats),
    Row(_cuda("memory_stats_as_nested_dict"), "modified", "as memory_stats", _nested_memory_stats),
    Row(_cuda("memory_summary"), "modified", "the figures of memory_stats as text", around=_around_summary),
    Row(_cuda("memory_snapshot"), "noop", "an empty list, by policy", _snapshot),
    Row(
        _cuda("mem_get_info"),
        "wraps",
        "the target's free and total bytes; raises where unknown",
        _mem_get_info,
    ),
    Row(_cuda("memory._record_memory_history"), "noop", f"{_NO_HISTORY}, by policy", _record_history),
    Row(_cuda("memory._dump_snapshot"), "noop", f"{_NO_HISTORY}: no file, by policy", _dump_history),
    Row(_cuda("empty_cache"), "wraps", "empties the target's cache, if it has one", _empty_cache),
    Row(_cuda("get_per_process_memory_fraction"), "wraps", "the target's limit", _get_fraction),
    Row(
        _cuda("set_per_process_memory_fraction"),
        "wraps",
        "the target's limit; where it has none the figure is kept, by policy",
        _set_fraction,
    ),
    Row(
        _cuda("get_allocator_backend"), "constant", "PyTorch's own allocator: native", lambda scope: "native"
    ),
    Row(
        _cuda("caching_allocator_enable"),
        "noop",
        "the target's allocator stays as it is, by policy",
        _says(_cuda("caching_allocator_enable"), "the target's allocator stays as it is", lambda: None),
    ),
    Row(
        _cuda("caching_allocator_disabled"),
        "noop",
        "the target's allocator stays as it is, by policy",
        _caching_stays,
        optional=True,
    ),
    *(
        Row(_cuda(name), "noop", f"{_NO_HOST}: an empty dict, by policy", _says(_cuda(name), _NO_HOST, dict))
        for name in ("host_memory_stats", "host_memory_stats_as_nested_dict")
    ),
    *(
        Row(_cuda(name), "noop", f"{_NO_HOST}, by policy", _says(_cuda(name), _NO_HOST, lambda: None))
        for name in ("reset_accumulated_host_memory_stats", "reset_peak_host_memory_stats")
    ),
    *(
        Row(_cuda(f"MemPool.{name}"), "noop", "of an object without memory, by policy", one)
        for name, one in _OF_POOL.items()
    ),
    Row(
        _cuda("MemPool"),
        "noop",
        "its constructor makes an object without memory, by policy",
        replacement=lambda original: shadow(original, _OF_POOL),
    ),
    Row(_cuda("use_mem_pool"), "noop", "the target's allocator is used, by policy", _no_pool),
    Row(_cuda("OutOfMemoryError"), "wraps", "raised where an allocation on CUDA fails"),
    Row(_cuda("memory"), "wraps", "a module: its public functions are redirected one by one"),
)
