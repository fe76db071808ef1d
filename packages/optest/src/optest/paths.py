"""Where optest keeps what outlives a run: journals and the default ledger."""

from __future__ import annotations

import os
from pathlib import Path


def state_dir() -> Path:
    """``$OPTEST_HOME``, else ``$XDG_STATE_HOME/optest``, else ``~/.local/state/optest``; not created here."""
    if home := os.environ.get("OPTEST_HOME"):
        return Path(home)
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "optest"
