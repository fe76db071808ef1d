"""The exit code for each error."""

from __future__ import annotations

from optest.console import ENVIRONMENT, FAILURES, USAGE

from ..errors import (
    ConfigError,
    DeviceNotFound,
    GapsError,
    InputMismatch,
    MissingExtra,
    ModelError,
    PluginError,
    RedirectError,
    RedirectTargetAbsent,
    ScriptError,
)

_USAGE_ERRORS = (ConfigError, GapsError, InputMismatch, ModelError, ScriptError, RedirectError)
_ENVIRONMENT_ERRORS = (DeviceNotFound, MissingExtra, PluginError, RedirectTargetAbsent)


def code_of(error: Exception) -> int:
    """Return the exit code of a command that raised ``error``."""
    if isinstance(error, _ENVIRONMENT_ERRORS):
        return ENVIRONMENT
    return USAGE if isinstance(error, _USAGE_ERRORS) else FAILURES
