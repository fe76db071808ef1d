"""Recording which calls were redirected, where in the user's code, and with what outcome.

A scope without a log does not use this module. The printed report is made by :mod:`.explain`.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

LOGGER = logging.getLogger("torchstone.redirect")


@dataclass(frozen=True, slots=True)
class Event:
    """One redirected call: the public name, the user's source line, and the outcome in words."""

    name: str
    file: str
    line: int
    outcome: str


Log = Callable[[Event], None]


class Recorder:
    """Counts equal events; give it to ``redirected(log=...)``."""

    def __init__(self) -> None:
        self.counts: Counter[Event] = Counter()

    def __call__(self, event: Event) -> None:
        self.counts[event] += 1


def to_logger(level: int = logging.INFO, logger: logging.Logger = LOGGER) -> Log:
    """Return a log that writes one line at ``level`` for each new event, and none for repetitions."""
    seen: set[Event] = set()

    def write(event: Event) -> None:
        if event not in seen:
            seen.add(event)
            logger.log(level, "%s:%d: %s: %s", event.file, event.line, event.name, event.outcome)

    return write
