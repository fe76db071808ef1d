"""Finds shards of a command that are not recorded, so that the other shards are not the whole run."""

from __future__ import annotations

import re
import shlex
from collections import defaultdict
from collections.abc import Iterable

from ..core.result import RunInfo
from ..names import listing

_SHARD = re.compile(r"(\d{1,18})/(\d{1,18})")
_ELSEWHERE = frozenset({"--ledger", "--report", "--workers", "--executor", "--timeout", "--retries"})
"""Flags that may differ between the shards of a command."""
_SWITCHES = frozenset({"--resume", "--no-color", "--fail-fast", "--json"})
_NAMED = 8


def missing_shards(runs: Iterable[RunInfo]) -> list[str]:
    """Return a warning for each sharded command of which ``runs`` lack a shard."""
    found: dict[tuple[str, str, int], set[int]] = defaultdict(set)
    for run in runs:
        command, index, count = _sharded(run.command_line)
        if count > 1:
            found[run.target, command, count].add(index)
    told = []
    for (target, command, count), there in found.items():
        lacking = [f"{one}/{count}" for one in range(1, min(count, 10_000) + 1) if one not in there]
        if lacking:
            shards = listing(lacking, limit=_NAMED)
            told.append(f"no run of {command!r} on {target} has the shards {shards}")
    return told


def _sharded(command_line: str) -> tuple[str, int, int]:
    """Return a command without the flags that may differ, and its shard; (1, 1) if it has none."""
    try:
        words = iter(shlex.split(command_line))
    except ValueError:  # a published command may be any text
        return command_line, 1, 1
    kept, index, count = [], 1, 1
    for word in words:
        name, equals, value = word.partition("=")
        if name == "--shard" or name in _ELSEWHERE:
            value = value if equals else next(words, "")
            if name == "--shard" and (match := _SHARD.fullmatch(value)):
                index, count = int(match[1]), int(match[2])
        elif word not in _SWITCHES:
            kept.append(word)
    return shlex.join(kept), index, count
