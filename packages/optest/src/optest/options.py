"""Limits of numbers on the command line, and option types with them, for the commands of both packages.

Sockets, databases and random generators accept every number within its limit.
"""

from __future__ import annotations

import math
from typing import Any

import click

MOST_SEED = 2**63 - 1
"""The largest seed that every database and random generator accepts."""
MOST_SECONDS = 1_000_000
"""The longest time: about twelve days; the longest wait of the operating system is 24 days."""
MOST_WORKERS = 10_000
MOST_RETRIES = 1000
MOST_REPEATS = 10_000
"""The largest number of calls or training steps to measure: the measurements stay in memory until the end."""


class Number(click.FloatRange):
    """A finite number within a range.

    Click's own range type accepts ``nan`` in every range, and a tolerance of ``inf`` would allow any error.
    """

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
