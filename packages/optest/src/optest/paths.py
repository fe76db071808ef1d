"""Where optest keeps what outlives a run: journals and the default ledger."""

from __future__ import annotations

import os
from pathlib import Path

from .errors import EnvironmentError_


def state_dir() -> Path:
    """``$OPTEST_HOME``, else ``$XDG_STATE_HOME/optest``, else ``~/.local/state/optest``; not created here.

    Raises :class:`EnvironmentError_` for a user without a home.
    """
    if home := os.environ.get("OPTEST_HOME"):
        return Path(home)
    base = os.environ.get("XDG_STATE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".local" / "state") / "optest"
    except RuntimeError as error:
        raise EnvironmentError_(
            f"there is no folder for ledger and journals: {error}", "OPTEST_HOME names one to use"
        ) from error
