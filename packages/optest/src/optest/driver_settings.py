"""JSON Schemas for the settings of the built-in drivers in ``backend_config``.

Plans are checked against these schemas. Drivers use :func:`check_settings` to check the settings
that embedding code gives them. The schemas require no field, because each layer of a plan may
contribute a part.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from .errors import UsageError
from .options import MOST_SECONDS

_TEXT = {"type": "string", "minLength": 1}
_SECONDS = {"type": "number", "exclusiveMinimum": 0, "maximum": MOST_SECONDS}
_DTYPE = {"type": "string", "pattern": "^[a-z][a-z0-9_]*$"}

_FILES = {
    "type": "array",
    "items": {
        "type": "object",
        "additionalProperties": False,
        "required": ["tensor", "path"],
        "properties": {
            "tensor": {**_TEXT, "description": "The tensor's name (`input0`, `output0`) or alias."},
            "path": {**_TEXT, "description": "The file, relative to `workdir` and inside it."},
            "dtype": {**_DTYPE, "description": "What the file holds. Default: the tensor's own dtype."},
        },
    },
}

COMMAND_FIELDS: dict[str, Any] = {
    "command": {
        "oneOf": [_TEXT, {"type": "array", "minItems": 1, "items": _TEXT}],
        "description": "The program and its arguments, as a list or as text that is split like a shell "
        "splits it; no shell runs it.",
    },
    "workdir": {
        **_TEXT,
        "description": "Where it runs, relative to the plan; one case at a time. Default: a new temporary "
        "folder for each case.",
    },
    "inputs": {
        **_FILES,
        "description": "The files that inputs are written to. Default: `input/NAME.bin` for every input.",
    },
    "outputs": {
        **_FILES,
        "description": "The files that outputs are read from. Default: `output/NAME.bin` for every output.",
    },
    "env": {
        "type": "object",
        "additionalProperties": {"type": ["string", "number"]},
        "description": "Environment variables, added to those of optest.",
    },
    "timeout": {**_SECONDS, "description": "Seconds after which the command and its children are killed."},
}

HTTP_FIELDS: dict[str, Any] = {
    "url": {"type": "string", "pattern": "^https?://", "description": "Where cases are posted to."},
    "headers": {
        "type": "object",
        "additionalProperties": {"type": "string"},
        "description": "Further request headers, such as Authorization.",
    },
    "timeout": {**_SECONDS, "description": "Seconds to wait for the answer."},
}

DRIVER_FIELDS: dict[str, dict[str, Any]] = {
    "command": COMMAND_FIELDS,
    "ascend": COMMAND_FIELDS,
    "http": HTTP_FIELDS,
}
"""The fields that each driver accepts."""


def validator_of(schema: Mapping[str, Any]) -> Any:
    """Return a validator for ``schema`` that only accepts finite numbers, since YAML allows ``.inf``."""
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend

    known = Draft202012Validator.TYPE_CHECKER

    def finite(checker: Any, value: Any) -> bool:
        return known.is_type(value, "number") and not (isinstance(value, float) and not math.isfinite(value))

    return extend(Draft202012Validator, type_checker=known.redefine("number", finite))(schema)


def settings_schema(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of one driver's settings."""
    return {"type": "object", "additionalProperties": False, "properties": dict(fields)}


def check_settings(driver: str, settings: Any, fields: Mapping[str, Any], *required: str) -> None:
    """Raise :class:`UsageError` if ``settings`` do not match ``fields`` or lack one of ``required``."""
    from jsonschema.exceptions import best_match

    where = f"backend_config.{driver}"
    violation = best_match(validator_of(settings_schema(fields)).iter_errors(settings))
    if violation is not None:
        raise UsageError(f"{where}{violation.json_path.removeprefix('$')}: {violation.message}")
    missing = [name for name in required if name not in settings]
    if missing:
        raise UsageError(
            f"the driver {driver!r} needs to know its {missing[0]}",
            f"give {where}.{missing[0]} in a plan; the plan reference shows its form",
        )


def hash_of_settings(settings: Mapping[str, Any], without: Iterable[str] = ("timeout", "workdir")) -> str:
    """Return 8 hex digits over a driver's settings, leaving out ``without``; empty if no others are left."""
    telling = {name: value for name, value in settings.items() if name not in without}
    text = json.dumps(telling, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:8] if telling else ""


def merge_config(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Merge driver settings, key by key within each driver; later layers override earlier ones."""
    merged: dict[str, Any] = {}
    for layer in layers:
        for driver, settings in layer.items():
            merged[driver] = {**merged.get(driver, {}), **settings}
    return merged
