"""The folder for files that outlive a run: journals and the default ledger."""

from __future__ import annotations

import os
from pathlib import Path

from .errors import EnvironmentError_


def state_dir() -> Path:
    """Return ``$OPTEST_HOME``, else ``$XDG_STATE_HOME/optest``, else ``~/.local/state/optest``.

    The folder is not created here. Raises :class:`EnvironmentError_` if the user has no home folder.
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
