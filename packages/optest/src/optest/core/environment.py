"""Collecting the facts about a run for reports and the ledger: machine, versions, command line."""

from __future__ import annotations

import contextlib
import datetime
import os
import platform
import secrets
import shlex
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

import numpy as np

from .._version import __version__
from ..text import redacted, writable
from .case import BackendTarget
from .result import RunInfo

COMMIT = "OPTEST_COMMIT"
"""The environment variable with the commit of the software under test."""


def describe_run(target: BackendTarget, seed: int = 0, packages: Sequence[str] = ()) -> RunInfo:
    """Return the facts about a new run on ``target`` that starts now on this machine.

    ``packages``: distributions whose versions are recorded; those that are not installed are left out.
    """
    commit = os.environ.get(COMMIT)
    now = datetime.datetime.now(datetime.UTC)
    return RunInfo(
        run_id=f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(3)}",
        started=now.isoformat(timespec="microseconds"),
        version=__version__,
        command_line=redacted(writable(shlex.join(["optest", *sys.argv[1:]]))),
        backend=target.to_dict(),
        environment={
            "python": platform.python_version(),
            "numpy": np.__version__,
            "platform": platform.platform(),
            "cpu": platform.processor() or platform.machine(),
            "cpus": str(os.cpu_count()),
            **_versions(packages),
            **({"commit": commit} if commit else {}),
        },
        seed=seed,
    )


def _versions(packages: Sequence[str]) -> dict[str, str]:
    found = {}
    for name in packages:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found
