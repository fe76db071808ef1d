"""What all commands have in common: how an OptestError ends one, and the plugins they load."""

from __future__ import annotations

import operator

from ..console import commands_of, echo
from ..errors import OptestError

command = commands_of(OptestError, operator.attrgetter("exit_code"))
"""Make a function a command of ``optest``."""


def load_plugins(as_json: bool) -> list[dict[str, str]]:
    """Run ``bootstrap``; failed plugins are told on stderr and returned for JSON."""
    from ..plugins import bootstrap

    failed = [one for one in bootstrap() if not one.loaded]
    for one in failed:
        if not as_json:
            echo(f"optest: {one.text()}; going on without it", err=True)
    return [{"name": one.name, "source": one.source, "error": one.error} for one in failed]
