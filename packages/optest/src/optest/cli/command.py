"""What all commands have in common: how an OptestError ends one, and the plugins they load."""

from __future__ import annotations

import operator

from ..console import commands_of, echo
from ..errors import OptestError

_BEYOND_CORE = ("hypothesis", "jinja2", "jsonschema", "pydantic", "scipy", "sqlalchemy", "yaml")
"""What the distribution ``optest`` brings, and ``optest-core`` alone does not."""
_OPTIONAL = dict.fromkeys(_BEYOND_CORE, "pip install optest") | {"expecttest": "pip install 'optest[torch]'"}

command = commands_of(OptestError, operator.attrgetter("exit_code"), _OPTIONAL)
"""Make a function a command of ``optest``."""


def load_plugins(as_json: bool) -> list[dict[str, str]]:
    """Run ``bootstrap``; failed plugins are told on stderr and returned for JSON."""
    from ..plugins import bootstrap

    failed = [one for one in bootstrap() if not one.loaded]
    for one in failed:
        if not as_json:
            echo(f"optest: {one.text()}; going on without it", err=True)
    return [{"name": one.name, "source": one.source, "error": one.error} for one in failed]
