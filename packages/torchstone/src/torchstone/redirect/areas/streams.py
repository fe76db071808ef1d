"""Streams and events: the target's own, or, on a target without streams, work in the order of the calls.

The classes stay PyTorch's; their methods are replaced while a scope is open, so ``isinstance``, annotations
and names imported earlier keep working. A redirected object holds the target's own stream or event in
``native`` (None if the target has none). On a target without events, an event records the host's clock. That
is correct because the work is done by then.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from typing import Any

import torch

from ...errors import RedirectUnsupported
from ...torch_internals import redirection
from .. import places
from ..mirror import Implementation
from ..rows import Row
from ..scope import Scope
from .classes import shadow_where_needed, stand_in

Stream = torch.cuda.Stream
Event = torch.cuda.Event

_STREAM, _EVENT = torch.Stream, torch.Event
_numbers = itertools.count(1)
_own = threading.local()
_MILLISECONDS = 1e-6
_CUDA_TYPE = 1
"""The ``device_type`` of CUDA streams in PyTorch's C code."""


def _priority_range() -> tuple[int, int]:
    """Stand for the method that only builds of PyTorch with CUDA have, written in C."""
    raise RuntimeError("torch.cuda.Stream.priority_range needs a build of PyTorch with CUDA")


# Streams ------------------------------------------------------------------------------


def _new_stream(scope: Scope, cls: Any, device: Any, priority: int, **kwargs: Any) -> Any:
    if isinstance(device, int) and device < 0:
        device = None
    return _make_stream(scope, cls, scope.ordinal(device), _native_stream(scope, device), priority)


def _make_stream(
    scope: Scope, cls: Any, index: int, native: Any, priority: int = 0, number: int | None = None
) -> Any:
    """Make a stream of the CUDA device ``index``; ``number`` is 0 for a default stream, like its address."""
    stream = object.__new__(cls)
    stream.native, stream.device, stream.priority = native, _shown(scope, index), priority
    stream.device_index, stream.device_type = index, _CUDA_TYPE
    if number is None:
        number = next(_numbers) if native is None else native.stream_id
    stream.stream_id = stream.cuda_stream = number
    return stream


def _shown(scope: Scope, index: int) -> Any:
    """Return the device of a stream, in the same form as ``x.device`` of a tensor on it."""
    return places.cuda(index) if scope.tracks else scope.place(index)


def _native_stream(scope: Scope, device: Any) -> torch.Stream | None:
    return _STREAM(device=scope.place(scope.ordinal(device))) if _has_native(scope) else None


def _has_native(scope: Scope) -> bool:
    """Whether the target has working streams and events of its own (tried once per scope)."""
    if "has_streams" not in scope.settings:
        scope.settings["has_streams"] = not scope.target.is_cpu and _streams_work(scope.device)
    return bool(scope.settings["has_streams"])


def _streams_work(device: torch.device) -> bool:
    try:
        stream, event = _STREAM(device=device), _EVENT(device=device, enable_timing=True)
        event.record(stream)
        event.wait(stream)
        event.synchronize()
        stream.synchronize()
        redirection.stream_of_device(0 if device.index is None else device.index)
        return bool(event.query()) and bool(stream.query())
    except RuntimeError:
        return False


def _new_external(scope: Scope, cls: Any, stream_ptr: Any, device: Any, **kwargs: Any) -> Any:
    raise _foreign("torch.cuda.ExternalStream")


def _from_external(scope: Scope, data_ptr: int, device: Any) -> Any:
    raise _foreign("torch.cuda.get_stream_from_external")


def _foreign(name: str) -> RedirectUnsupported:
    return RedirectUnsupported(
        f"{name} has no meaning on the redirected device: a CUDA stream's address names nothing there",
        hint="use a stream that PyTorch makes: torch.cuda.Stream()",
    )


def _wait_stream(scope: Scope, self: Any, stream: Any) -> None:
    if self.native is not None and getattr(stream, "native", None) is not None:
        self.native.wait_stream(stream.native)


def _record_event(scope: Scope, self: Any, event: Any) -> Any:
    event = Event() if event is None else event
    event.record(self)
    return event


def _query_stream(scope: Scope, self: Any) -> bool:
    return True if self.native is None else bool(self.native.query())


def _synchronize_stream(scope: Scope, self: Any) -> None:
    if self.native is not None:
        self.native.synchronize()


def _same_stream(scope: Scope, self: Any, o: Any) -> bool:
    if not isinstance(o, Stream):
        return False
    return (self.stream_id, self.device) == (o.stream_id, o.device)


def _describe_stream(scope: Scope, self: Any) -> str:
    return f"<torch.cuda.Stream device={self.device} stream_id={self.stream_id:#x} (redirected)>"


def current_stream(scope: Scope, device: Any) -> Any:
    stream = _of_thread(scope).get(scope.ordinal(device))
    return _default_stream(scope, device) if stream is None else stream


def _around_current_stream(original: Any) -> Implementation:
    """Use the scope's current stream, except in code that Dynamo traces, where Dynamo knows the stream."""

    def implementation(scope: Scope, device: Any) -> Any:
        if torch.compiler.is_dynamo_compiling():
            return original() if device is None else original(device)
        return current_stream(scope, device)

    return implementation


def _default_stream(scope: Scope, device: Any) -> Any:
    """Return a device's default stream, one object per scope, for the stream current at first use."""
    index = scope.ordinal(device)
    streams = scope.settings.setdefault("default_streams", {})
    if index not in streams:
        native = _native_current(scope, index) if _has_native(scope) else None
        streams[index] = _make_stream(scope, Stream, index, native, number=0)
    return streams[index]


def _native_current(scope: Scope, index: int) -> torch.Stream:
    found: torch.Stream = redirection.stream_of_device(scope.place(index).index)
    return found


def _set_stream(scope: Scope, stream: Any) -> None:
    if stream is None:
        return
    _of_thread(scope)[stream.device_index] = stream
    scope.select(stream.device_index)
    if stream.native is not None:
        redirection.set_stream(stream.native)


def _of_thread(scope: Scope) -> dict[int, Any]:
    """Return this thread's current streams in ``scope``, by device index."""
    if getattr(_own, "scope", None) is not scope:
        _own.scope, _own.streams = scope, {}
    found: dict[int, Any] = _own.streams
    return found


def made_already(scope: Scope, self: Any, *args: Any, **kwargs: Any) -> None:
    """Do nothing as ``__init__``: ``__new__`` has made everything, and the base in C may be missing."""


# Events -------------------------------------------------------------------------------


def _new_event(
    scope: Scope, cls: Any, enable_timing: bool, blocking: bool, interprocess: bool, external: bool
) -> Any:
    event = object.__new__(cls)
    event.native, event.recorded, event.timed = None, None, enable_timing
    event.device, event.cuda_event = _shown(scope, scope.ordinal()), 0
    if _has_native(scope):
        event.native = _EVENT(device=scope.target.type, enable_timing=enable_timing)
    return event


def _record(scope: Scope, self: Any, stream: Any) -> None:
    if self.native is None:
        _wait_for_target(scope)
    else:
        stream = current_stream(scope, None) if stream is None else stream
        self.native.record(getattr(stream, "native", stream))
    self.recorded = time.perf_counter_ns()


def _wait_for_target(scope: Scope) -> None:
    """Wait before the host's clock is read, because an accelerator without events may still be working."""
    if not scope.target.is_cpu:
        torch.cuda.synchronize()


def _wait(scope: Scope, self: Any, stream: Any) -> None:
    if self.native is not None and self.recorded is not None:
        stream = current_stream(scope, None) if stream is None else stream
        self.native.wait(getattr(stream, "native", stream))


def _query_event(scope: Scope, self: Any) -> bool:
    return True if self.native is None or self.recorded is None else bool(self.native.query())


def _synchronize_event(scope: Scope, self: Any) -> None:
    if self.native is not None and self.recorded is not None:
        self.native.synchronize()


def _elapsed_time(scope: Scope, self: Any, end_event: Any) -> float:
    if not (self.timed and end_event.timed):
        raise ValueError("Both events must be created with argument 'enable_timing=True'.")
    if self.recorded is None or end_event.recorded is None:
        raise ValueError("Both events must be recorded before calculating elapsed time.")
    if self.native is not None:
        return float(self.native.elapsed_time(end_event.native))
    return float((end_event.recorded - self.recorded) * _MILLISECONDS)


def _describe_event(scope: Scope, self: Any) -> str:
    state = "uninitialized" if self.recorded is None else "recorded"
    return f"<torch.cuda.Event {state} (redirected to {scope.target})>"


def _ipc_handle(scope: Scope, self: Any) -> bytes:
    raise RedirectUnsupported("an event of the redirected device cannot be shared between processes")


def _from_ipc_handle(scope: Scope, cls: Any, device: Any, handle: Any) -> Any:
    raise RedirectUnsupported("an event of the redirected device cannot be shared between processes")


def _plain_enter(self: Any) -> Any:
    return self


def _plain_exit(self: Any, *error: Any) -> None:
    return None


def _enter_stream(scope: Scope, self: Any) -> Any:
    """Enter ``with stream:``, which may be nested and entered again."""
    before = current_stream(scope, None), current_stream(scope, self.device)
    self.__dict__.setdefault("outer", []).append(before)
    _set_stream(scope, self)
    return self


def _leave_stream(scope: Scope, self: Any, *error: Any) -> None:
    elsewhere, here = self.outer.pop()
    _set_stream(scope, here)
    scope.select(elsewhere.device_index)


def _around_record_stream(original: Any) -> Any:
    """Pass ``record_stream`` on only if the target has streams; others need not know who uses the memory."""

    def implementation(scope: Scope, self: torch.Tensor, s: Any) -> None:
        native = getattr(s, "native", s)
        if native is not None:
            with contextlib.suppress(NotImplementedError):  # the target does not implement it
                original(self, native)

    return implementation


# torch.Stream and torch.Event -----------------------------------------------------------


def _any_stream(scope: Scope, device: Any = None, *, priority: int = 0, **kwargs: Any) -> Any:
    place = scope.device if device is None else places.parsed(scope.place(device))
    if place.type == "cpu":
        return Stream(scope.index_of_device(place), priority=priority)
    return _STREAM(device=place, priority=priority, **kwargs)


def _any_event(scope: Scope, device: Any = None, **kwargs: Any) -> Any:
    place = scope.device if device is None else places.parsed(scope.place(device))
    return Event(**kwargs) if place.type == "cpu" else _EVENT(device=place, **kwargs)


_OF_STREAM: dict[str, Implementation] = {
    "__new__": _new_stream,
    "__init__": made_already,
    "wait_stream": _wait_stream,
    "record_event": _record_event,
    "query": _query_stream,
    "synchronize": _synchronize_stream,
    "__eq__": _same_stream,
    "__repr__": _describe_stream,
}
_WITH_STREAM: dict[str, Implementation] = {"__enter__": _enter_stream, "__exit__": _leave_stream}
"""Documented methods that a build of PyTorch without CUDA lacks."""
_OF_EVENT: dict[str, Implementation] = {
    "__new__": _new_event,
    "__init__": made_already,
    "record": _record,
    "wait": _wait,
    "query": _query_event,
    "synchronize": _synchronize_event,
    "elapsed_time": _elapsed_time,
    "__repr__": _describe_event,
}
_FUNCTIONS: dict[str, Implementation] = {
    "default_stream": _default_stream,
    "set_stream": _set_stream,
}
_METHODS = (
    {f"Stream.{name}": one for name, one in _OF_STREAM.items()}
    | {f"Event.{name}": one for name, one in _OF_EVENT.items()}
    | _FUNCTIONS
)
_RAISES: dict[str, Implementation] = {
    "ExternalStream.__new__": _new_external,
    "Event.ipc_handle": _ipc_handle,
    "Event.from_ipc_handle": _from_ipc_handle,
    "get_stream_from_external": _from_external,
}

ROWS = (
    Row("torch.cuda.current_stream", "wraps", "the target's streams", around=_around_current_stream),
    *(
        Row(f"torch.cuda.{name}", "wraps", "the target's streams and events", one)
        for name, one in _METHODS.items()
    ),
    Row("torch.cuda.Stream.__enter__", "wraps", "becomes current", _enter_stream, otherwise=_plain_enter),
    Row("torch.cuda.Stream.__exit__", "wraps", "is current no more", _leave_stream, otherwise=_plain_exit),
    *(
        Row(f"torch.cuda.{name}", "raises", "a CUDA handle names nothing on the target", one)
        for name, one in _RAISES.items()
    ),
    Row(
        "torch.cuda.Stream",
        "wraps",
        "its methods are redirected one by one",
        replacement=lambda original: shadow_where_needed(original, _OF_STREAM | _WITH_STREAM),
    ),
    Row(
        "torch.cuda.Event",
        "wraps",
        "its methods are redirected one by one; elapsed_time is really measured",
        replacement=lambda original: shadow_where_needed(original, _OF_EVENT),
    ),
    Row(
        "torch.cuda.ExternalStream",
        "raises",
        "its constructor: a CUDA stream's address names nothing on the target",
    ),
    Row(
        "torch.cuda.Stream.priority_range",
        "constant",
        "the priorities that PyTorch documents, 0 and -1; the target keeps and ignores them",
        lambda scope: (0, -1),
        otherwise=staticmethod(_priority_range),
    ),
    Row("torch.cuda.StreamContext", "wraps", "unchanged over the redirected streams"),
    Row("torch.cuda.stream", "wraps", "unchanged over the redirected streams"),
    Row("torch.cuda.streams", "wraps", "a module: its classes are redirected"),
    Row(
        "torch.Tensor.record_stream",
        "wraps",
        "for a target with streams of its own",
        around=_around_record_stream,
    ),
    Row(
        "torch.Stream",
        "wraps",
        "makes a stream of the target",
        replacement=lambda original: stand_in(original, _any_stream, derived=(Stream,)),
    ),
    Row(
        "torch.Event",
        "wraps",
        "makes an event of the target",
        replacement=lambda original: stand_in(original, _any_event, derived=(Event,)),
    ),
)
