"""Bounds of numbers that people give, and types of options with them, for the commands of both packages.

Every number has a bound at which the parts beneath (sockets, databases, random generators) still take it.
"""

from __future__ import annotations

import math
from typing import Any

import click

MOST_SEED = 2**63 - 1
"""What every database and random generator takes."""
MOST_SECONDS = 1_000_000
"""Twelve days; the system's own waits end at 24."""
MOST_WORKERS = 10_000
MOST_RETRIES = 1000
MOST_REPEATS = 10_000
"""Calls or training steps that one command measures: what it notes of each is kept until the end."""


class Number(click.FloatRange):
    """A finite number within a range: ``nan`` is in every range, and ``inf`` is a tolerance of anything."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


SEED = click.IntRange(0, MOST_SEED)
SECONDS = Number(0, MOST_SECONDS, min_open=True)
TOLERANCE = Number(0)
SHARE = Number(0, 1)
WORKERS = click.IntRange(1, MOST_WORKERS)
RETRIES = click.IntRange(0, MOST_RETRIES)
REPEATS = click.IntRange(1, MOST_REPEATS)
REPEATS_OR_NONE = click.IntRange(0, MOST_REPEATS)
