"""Events and streams of the device, which runs all work in order, as one stream."""

from __future__ import annotations

import time
from typing import Any

import torch

from . import engine
from .calls import check_device
from .lazy import run_all
from .storage import DEVICE_TYPE


def _checked(device: Any) -> torch.device:
    """Return the requested device. Raises if it does not exist."""
    found = torch.device(DEVICE_TYPE if device is None else device)
    check_device(found)
    return found


class Event(torch.Event):
    """A point in the order of the device's work; ``torch.Event(device="pjrt")`` makes one.

    With ``enable_timing``, ``record`` waits for the work before the event and saves the time.
    """

    def __new__(cls, device: Any = DEVICE_TYPE, **options: bool) -> Event:
        """``options`` are those of ``torch.Event``: ``enable_timing``, ``blocking`` and ``interprocess``."""
        return super().__new__(cls, _checked(device), **options)

    def __init__(self, device: Any = DEVICE_TYPE, *, enable_timing: bool = False, **_: bool) -> None:
        self._timed = enable_timing
        self._seconds: float | None = None
        self._marker: Any = None

    def record(self, stream: torch.Stream | None = None) -> None:
        """Record the event after all work given to the device so far; pending calls run first."""
        run_all()
        self._marker = engine.marker()
        if self._timed:
            engine.wait(self._marker)
            self._seconds = time.perf_counter()

    def query(self) -> bool:
        """Whether the work before the event is done; True if it was never recorded."""
        return self._marker is None or engine.is_ready(self._marker)

    def synchronize(self) -> None:
        """Wait for the work before the event."""
        if self._marker is not None:
            engine.wait(self._marker)

    def wait(self, stream: torch.Stream | None = None) -> None:
        """Do nothing: all later work runs after the event anyway."""

    def elapsed_time(self, end_event: torch.Event) -> float:
        """Return the milliseconds from this event to ``end_event``.

        Raises ``ValueError`` unless both events were made with ``enable_timing`` and were recorded.
        """
        if not isinstance(end_event, Event) or not (self._timed and end_event._timed):
            raise ValueError(
                "Both events must be created with argument 'enable_timing=True'.\n"
                f'  next: torch.Event("{DEVICE_TYPE}", enable_timing=True)'
            )
        if self._seconds is None or end_event._seconds is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return (end_event._seconds - self._seconds) * 1e3


class Stream(torch.Stream):
    """The device's one stream; every instance is the same one."""

    def __new__(cls, device: Any = DEVICE_TYPE, priority: int = 0) -> Stream:
        return super().__new__(cls, _checked(device))

    def record_event(self, event: torch.Event | None = None) -> torch.Event:
        """Record ``event``, or a new one."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def synchronize(self) -> None:
        """Run pending calls, and wait for all work of the device."""
        run_all()
        engine.synchronize()
