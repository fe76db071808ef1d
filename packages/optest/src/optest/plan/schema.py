"""The published JSON Schema of a plan, and the error messages for violations of it.

``optest schema plan`` prints the schema, and the plan reference in the documentation is
generated from it. Names of operators, attributes and tensors are checked later against the
registry (``entries``).
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from ..driver_settings import DRIVER_FIELDS, settings_schema, validator_of
from ..names import listing, near_misses
from ..options import MOST_RETRIES, MOST_SECONDS, MOST_SEED, MOST_WORKERS
from .document import Document, Keys

_STRING = {"type": "string", "minLength": 1}
_DTYPE = {"type": "string", "pattern": "^[a-z][a-z0-9_]*$"}
_DTYPES = {
    "oneOf": [
        _DTYPE,
        {
            "type": "array",
            "minItems": 1,
            "items": {"oneOf": [_DTYPE, {"type": "array", "minItems": 1, "items": _DTYPE}]},
        },
    ],
}
_SHAPE = {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 2**63 - 1}}
_SHAPE_OR_SHAPES = {"oneOf": [_SHAPE, {"type": "array", "minItems": 1, "items": _SHAPE}]}
_SHAPES_BY_NAME = {"type": "object", "minProperties": 1, "additionalProperties": _SHAPE_OR_SHAPES}
_SEED = {"type": "integer", "minimum": 0, "maximum": MOST_SEED}
_PATH = {"type": "string", "pattern": "^[^\\s:]+[.:][^\\s:]+$"}

TOLERANCE_FIELDS: dict[str, Any] = {
    "rtol": {"type": "number", "minimum": 0, "description": "Relative tolerance."},
    "atol": {"type": "number", "minimum": 0, "description": "Absolute tolerance."},
    "equal_nan": {"type": "boolean", "description": "Whether NaN agrees with NaN."},
    "signed_zero": {"type": "boolean", "description": "Whether −0.0 disagrees with +0.0."},
    "factor": {
        "type": "number",
        "minimum": 1,
        "description": "How many times the control's own error is still acceptable.",
    },
}

_CHANGES = {"type": "object", "additionalProperties": False, "properties": TOLERANCE_FIELDS}
_BY_DTYPE = {"type": "object", "additionalProperties": _CHANGES}

CASE_FIELDS: dict[str, Any] = {
    "dtypes": {
        **_DTYPES,
        "description": "A dtype or a list of them; one entry may list a dtype per input. "
        "Default: the dtypes that the driver's input files hold, or every dtype of the operator.",
    },
    "shapes": {
        "oneOf": [
            _SHAPES_BY_NAME,
            {"type": "array", "minItems": 1, "items": {"oneOf": [_SHAPES_BY_NAME, _SHAPE]}},
        ],
        "description": "Shapes by input name; a list of shapes is a list of alternatives. Or a list of such "
        "mappings, or of shapes that all inputs have. Output names (output0) are checked against the "
        "operator's shape rule. Default: the operator's built-in shapes.",
    },
    "attributes": {
        "oneOf": [
            {"type": "object"},
            {"type": "array", "minItems": 1, "items": {"type": "object"}},
        ],
        "description": "Attributes by name, or a list of such mappings. A list is a list of alternatives "
        "where the attribute itself takes no list.",
    },
    "rtol": TOLERANCE_FIELDS["rtol"],
    "atol": TOLERANCE_FIELDS["atol"],
    "tolerance": {**_CHANGES, "description": "Changes to the tolerance of the operator's results."},
    "seed": {
        "oneOf": [_SEED, {"type": "array", "minItems": 1, "items": _SEED}],
        "description": "The seed of the inputs, or a list of them.",
    },
    "generator": {**_PATH, "description": "Dotted path module:Class of the input generator."},
    "reference": {**_PATH, "description": "Dotted path module:function of the reference."},
    "phase": {
        "oneOf": [_STRING, {"type": "array", "minItems": 1, "items": _STRING}],
        "description": "forward, or another phase that the driver knows.",
    },
    "backend_config": {
        "type": "object",
        "properties": {driver: settings_schema(fields) for driver, fields in DRIVER_FIELDS.items()},
        "additionalProperties": {"type": "object"},
        "description": "Settings of drivers, by driver (ascend, command, http, …); merged over the plan's.",
    },
    "note": {"type": "string", "description": "A remark that reports show."},
}

OPTION_FIELDS: dict[str, Any] = {
    "workers": {
        "type": "integer",
        "minimum": 1,
        "maximum": MOST_WORKERS,
        "description": "Worker processes.",
    },
    "timeout": {
        "type": "number",
        "exclusiveMinimum": 0,
        "maximum": MOST_SECONDS,
        "description": "Seconds a case may take.",
    },
    "retries": {
        "type": "integer",
        "minimum": 0,
        "maximum": MOST_RETRIES,
        "description": "How often a failed case is tried again.",
    },
    "fail_fast": {"type": "boolean", "description": "Stop at the first failure."},
    "report": {
        "oneOf": [_STRING, {"type": "array", "items": _STRING}],
        "description": "Reports as KIND or KIND:PATH (json, junit, html).",
    },
    "ledger": {"type": "string", "description": "Path or URL of the result ledger; none turns it off."},
    "expectations": {"type": "string", "description": "TOML file of declared gaps, relative to the plan."},
    "filter": {
        "oneOf": [_STRING, {"type": "array", "items": _STRING}],
        "description": "Which cases to keep, as --filter has it.",
    },
}

PLAN_SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$id": "urn:optest:plan:1",
    "title": "optest plan",
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "version": {"const": 1, "description": "The version of this format."},
        "include": {
            "oneOf": [_STRING, {"type": "array", "items": _STRING}],
            "description": "Plans to read first, relative to this file: their cases come before this "
            "plan's, their other settings hold unless this plan has its own.",
        },
        "backend": {**_STRING, "description": "Kind or name of the driver."},
        "chip": {**_STRING, "description": "Chip of the driver."},
        "seed": {**_SEED, "description": "Seed of cases that have none of their own."},
        "suite": {"enum": ["builtin"], "description": "Adds every built-in case after this plan's own."},
        "defaults": {
            "type": "object",
            "additionalProperties": False,
            "properties": CASE_FIELDS,
            "description": "Fields of every case in this file that does not set them.",
        },
        "backend_config": CASE_FIELDS["backend_config"],
        "tolerances": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "dtypes": _BY_DTYPE,
                "categories": {"type": "object", "additionalProperties": _BY_DTYPE},
                "operators": {"type": "object", "additionalProperties": _BY_DTYPE},
            },
            "description": "Changes to the default tolerances by dtype (* for all), category, operator.",
        },
        "options": {
            "type": "object",
            "additionalProperties": False,
            "properties": OPTION_FIELDS,
            "description": "How to run; flags of the command line win.",
        },
        "cases": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["op"],
                "properties": {
                    "op": {
                        "oneOf": [_STRING, {"type": "array", "minItems": 1, "items": _STRING}],
                        "description": "An operator or a list of them.",
                    },
                    **CASE_FIELDS,
                },
            },
            "description": "Entries; each becomes ops × dtypes × shapes × attributes × seeds × phases cases.",
        },
    },
}
"""The schema of a plan; :func:`check_plan` finds the line and key of a violation."""


def check_plan(document: Document) -> None:
    """Raise a :class:`PlanError` for the first violation of :data:`PLAN_SCHEMA` in the file."""
    if document.data is None:
        document.data = {}
    violations = sorted(_validator().iter_errors(document.data), key=lambda one: _line(document, one))
    if violations:
        raise _as_error(document, violations[0])


@cache
def _validator() -> Any:
    return validator_of(PLAN_SCHEMA)


def _line(document: Document, violation: Any) -> int:
    return document.line(tuple(violation.absolute_path)) or 0


def _as_error(document: Document, violation: Any) -> Exception:
    violation = _deepest(violation)
    keys: Keys = tuple(violation.absolute_path)
    found = violation.instance
    if violation.validator == "additionalProperties":
        known = list(violation.schema["properties"])
        name = next(key for key in found if key not in known)
        near = near_misses(name, known)
        hint = f"did you mean {listing(near, last='or')}?" if near else None
        return document.error(
            (*keys, name), "unknown key", found=name, allowed=listing(known, limit=40), hint=hint
        )
    if violation.validator == "required":
        name = next(key for key in violation.validator_value if key not in found)
        return document.error(keys, f"{name} is missing", found=list(found), allowed=f"a key {name}")
    return document.error(keys, "wrong value", found=found, allowed=_allowed(violation.schema))


def _deepest(violation: Any) -> Any:
    """Return the violation in the branch of ``oneOf`` that matched furthest, if every branch failed."""
    while violation.validator == "oneOf" and violation.context:
        branches = [one for one in violation.context if one.validator != "type"]
        inside = [one for one in branches if len(one.absolute_path) > len(violation.absolute_path)]
        further = inside or [
            one for one in violation.context if len(one.absolute_path) > len(violation.absolute_path)
        ]
        if not further:
            return violation
        violation = max(further, key=lambda one: len(one.absolute_path))
    return violation


def _allowed(schema: Any) -> str:
    """Return in words what a schema allows, such as ``text or a list of text``."""
    if "oneOf" in schema:
        return " or ".join(dict.fromkeys(_allowed(one) for one in schema["oneOf"]))
    if "const" in schema:
        return json.dumps(schema["const"])
    if "enum" in schema:
        return listing([json.dumps(one) for one in schema["enum"]], last="or")
    kind = schema.get("type")
    if isinstance(kind, list):
        return " or ".join(_allowed({**schema, "type": one}) for one in kind)
    if kind == "array":
        return f"a list of {_allowed(schema['items'])}" if "items" in schema else "a list"
    if kind == "object":
        values = schema.get("additionalProperties")
        return f"a mapping to {_allowed(values)}" if isinstance(values, dict) and values else "a mapping"
    text = {
        "integer": "a whole number",
        "number": "a finite number",
        "string": "text",
        "boolean": "true or false",
    }
    word = text.get(str(kind), "a value")
    if "minimum" in schema:
        word += f" of at least {schema['minimum']}"
    if "exclusiveMinimum" in schema:
        word += f" above {schema['exclusiveMinimum']}"
    if "maximum" in schema:
        word += f" and at most {schema['maximum']}"
    if schema is _PATH or schema.get("pattern") == _PATH["pattern"]:
        word = "a dotted path module:name"
    if schema.get("pattern") == _DTYPE["pattern"]:
        word = "a dtype name such as float16"
    return word
