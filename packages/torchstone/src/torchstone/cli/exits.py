"""Exit codes, and which error means which."""

from __future__ import annotations

from ..errors import ConfigError, DeviceNotFound, InputMismatch, MissingExtra, ModelError, PluginError

OK = 0
FAILURES = 1
"""The command ran, and what it looked at is not in order."""
USAGE = 2
ENVIRONMENT = 3
INTERRUPTED = 130

_USAGE_ERRORS = (ConfigError, InputMismatch, ModelError)
_ENVIRONMENT_ERRORS = (DeviceNotFound, MissingExtra, PluginError)


def code_of(error: Exception) -> int:
    """The exit code of a command that raised ``error``."""
    if isinstance(error, _USAGE_ERRORS):
        return USAGE
    return ENVIRONMENT if isinstance(error, _ENVIRONMENT_ERRORS) else FAILURES
