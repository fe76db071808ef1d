"""The command-line options for a scope, which child processes read from the environment."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass

VARIABLE = "TORCHSTONE_REDIRECT_CHILDREN"
LIMIT = 63
"""The most CUDA devices that the ``cpu`` target can stand for: PyTorch's device indices are small."""
LOG_LEVELS = ("warning", "info", "debug")
"""``info`` writes each new redirected call site to stderr, ``debug`` every redirected call."""


@dataclass(frozen=True)
class Options:
    """The command-line options for entering a scope."""

    target: str = "auto"
    policy: str = "warn"
    log_level: str = "warning"
    devices: int = 1


def tell_children(options: Options) -> None:
    """Make the interpreters that this process starts from now on enter a scope with these options."""
    os.environ[VARIABLE] = json.dumps(asdict(options))
