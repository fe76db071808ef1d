"""Child processes of a redirected script are redirected too.

A forked child inherits the scope. A new interpreter (multiprocessing's ``spawn``, ranks of ``torchrun``,
any ``python`` that the script starts) inherits the environment: :func:`tell_children` describes the scope
in one variable, and ``import torch`` in the child calls :func:`enter_scope_of_parent` through PyTorch's
entry points for backends (``torch.backends``). Without the variable it does nothing. It imports neither
torch nor the rest of this package before it has found the variable.
"""

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


_entered = False


def tell_children(options: Options) -> None:
    """Let the interpreters that this process starts from now on enter such a scope."""
    os.environ[VARIABLE] = json.dumps(asdict(options))


def enter_scope_of_parent() -> None:
    """Enter the scope that the environment describes, for the rest of the process; at most once."""
    global _entered
    described = os.environ.get(VARIABLE)
    if described is None or _entered:
        return
    _entered = True
    from .launch import enter

    enter(Options(**json.loads(described)))
