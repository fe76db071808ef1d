"""The facts about a run that reports and the ledger keep: machine, versions, command line."""

from __future__ import annotations

import datetime
import os
import platform
import secrets
import shlex
import sys

import numpy as np

from .. import __version__
from .case import BackendTarget
from .result import RunInfo


def describe_run(target: BackendTarget, seed: int = 0) -> RunInfo:
    """A new run on ``target``, that starts now on this machine."""
    now = datetime.datetime.now(datetime.UTC)
    return RunInfo(
        run_id=f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(3)}",
        started=now.isoformat(timespec="microseconds"),
        version=__version__,
        command_line=shlex.join(["optest", *sys.argv[1:]]),
        backend={"kind": target.kind, "name": target.name, "chip": target.chip},
        environment={
            "python": platform.python_version(),
            "numpy": np.__version__,
            "platform": platform.platform(),
            "cpu": platform.processor() or platform.machine(),
            "cpus": str(os.cpu_count()),
        },
        seed=seed,
    )
