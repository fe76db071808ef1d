"""How a scope is entered: options of the command line, which child processes find in the environment."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass

VARIABLE = "TORCHSTONE_REDIRECT_CHILDREN"
LIMIT = 63
"""How many CUDA devices the ``cpu`` target can stand for: the indices of devices are small integers."""
LOG_LEVELS = ("warning", "info", "debug")
"""``info`` writes each new redirected call site to stderr, ``debug`` every redirected call."""


@dataclass(frozen=True)
class Options:
    """How a scope is entered, as options of the command line."""

    target: str = "auto"
    policy: str = "warn"
    log_level: str = "warning"
    devices: int = 1


def tell_children(options: Options) -> None:
    """Let the interpreters that this process starts from now on enter such a scope."""
    os.environ[VARIABLE] = json.dumps(asdict(options))
