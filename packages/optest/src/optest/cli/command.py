"""Shared parts of all commands: how an OptestError ends a command, and loading plugins."""

from __future__ import annotations

import operator

from ..console import commands_of, echo
from ..errors import OptestError

_BEYOND_CORE = ("hypothesis", "jinja2", "jsonschema", "pydantic", "scipy", "sqlalchemy", "yaml")
"""Packages that the distribution ``optest`` installs, but ``optest-core`` does not."""
_OPTIONAL = dict.fromkeys(_BEYOND_CORE, "pip install optest") | {"expecttest": "pip install 'optest[torch]'"}

command = commands_of(OptestError, operator.attrgetter("exit_code"), _OPTIONAL)
"""The decorator that turns a function into a command of ``optest``."""


def load_plugins(as_json: bool) -> list[dict[str, str]]:
    """Run ``bootstrap``; report failed plugins on stderr, and return them for JSON."""
    from ..plugins import bootstrap

    failed = [one for one in bootstrap() if not one.loaded]
    for one in failed:
        if not as_json:
            echo(f"optest: {one.text()}; going on without it", err=True)
    return [{"name": one.name, "source": one.source, "error": one.error} for one in failed]
