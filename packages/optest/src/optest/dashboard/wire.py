"""The format of published results: one part of a run as JSON; every field is checked before storing.

    {"format": 1, "run": {…}, "results": [{…}, …], "summary": {…} or null}

Not here: sending (``publish``) and receiving it (``server``).
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from ..core.result import CaseResult, RunInfo, Status
from ..errors import UsageError

FORMAT = 1
"""The version of the format; a server refuses others."""
MOST_RESULTS = 5000
"""The largest number of results in a part."""


def _without_nul(text: str) -> str:
    return text.replace("\0", "\ufffd")  # databases have no NUL in texts


def _in_utc(date: str) -> str:
    """Return the date in UTC, the form by which runs are ordered; raises ``ValueError`` if it is invalid."""
    try:
        found = datetime.datetime.fromisoformat(date).astimezone(datetime.UTC)
    except OverflowError as error:
        raise ValueError(str(error)) from error
    return date if date.endswith("+00:00") else found.isoformat(timespec="microseconds")


Name = Annotated[str, Field(min_length=1, max_length=300), AfterValidator(_without_nul)]
Text = Annotated[str, Field(max_length=100_000), AfterValidator(_without_nul)]
Key = Annotated[str, Field(pattern=r"^[0-9A-Za-z][0-9A-Za-z._-]{0,99}$")]
Count = Annotated[int, Field(ge=0, lt=2**63)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Backend(_Part):
    kind: Name
    name: Name | None
    chip: Name | None
    config: Name | None = None


class _Run(_Part):
    run_id: Key
    started: Annotated[
        str,
        Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?\+\d\d:\d\d$"),
        AfterValidator(_in_utc),
    ]
    version: Name
    command_line: Text
    backend: _Backend
    environment: Annotated[dict[Name, Text], Field(max_length=100)]
    seed: Count
    planned: Count | None = None


class _Accuracy(_Part):
    ulp_error: float | None
    control_ulp_error: float | None


class _Comparison(_Part):
    output: Name
    passed: bool
    count: Count
    mismatches: Count
    max_abs: float | None
    max_rel: float | None
    max_ulp: float | None
    accuracy: _Accuracy | None


class _Declared(_Part):
    dtypes: Annotated[list[Name], Field(max_length=100)]
    gradients: Annotated[list[Name], Field(max_length=100)]
    phases: Annotated[list[Name], Field(max_length=100)]
    entries: Count


class _Origin(_Part):
    suite: Name
    sample: Count | Name
    note: Text
    form: Annotated[str, Field(max_length=300)]
    overloads: Annotated[list[Name], Field(max_length=1000)]
    among: Count
    values: Text
    declared: _Declared | None


class _Result(_Part):
    case_id: Annotated[str, Field(pattern="^[0-9a-f]{16}$")]
    op: Name
    category: Annotated[str, Field(max_length=300)]
    dtypes: Annotated[list[Name], Field(max_length=100)]
    shapes: Annotated[dict[str, list[Count]], Field(max_length=1000)]
    attributes: Annotated[dict[str, Any], Field(max_length=1000)]
    phase: Name
    seed: Count
    backend: _Backend
    status: Annotated[Status, Field(strict=False)]
    reason: Text
    comparisons: Annotated[list[_Comparison], Field(max_length=1000)]
    duration_s: Seconds
    stderr_tail: Text
    exit_code: int | None
    signal: Name | None
    attempts: Annotated[int, Field(ge=1, lt=2**31)]
    flaky: bool
    rerun: Text
    origin: _Origin | None = None
    inputs: Annotated[str, Field(max_length=100)] = ""
    settings: Annotated[str, Field(max_length=100)] = ""


class _Message(_Part):
    format: Literal[1]
    run: _Run
    results: Annotated[list[_Result], Field(max_length=MOST_RESULTS)]
    summary: dict[str, Any] | None


def encode(run: RunInfo, results: Sequence[CaseResult], summary: str | None) -> bytes:
    """Return a part as bytes; infinities are written as Python's JSON writes them."""
    message = {
        "format": FORMAT,
        "run": run.to_dict(),
        "results": [one.to_dict() for one in results],
        "summary": None if summary is None else json.loads(summary),
    }
    return json.dumps(message, separators=(",", ":")).encode()


def decode(body: bytes) -> tuple[RunInfo, list[CaseResult], str | None]:
    """Return the part in ``body``; raises :class:`UsageError` that says what is wrong and where."""
    try:
        data = json.loads(body)
        json.dumps(data, ensure_ascii=False).encode()  # no lone surrogates, which no database takes
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the body is not JSON: {error}") from None
    if isinstance(data, dict) and data.get("format") not in (None, FORMAT):
        raise UsageError(f"the format is {data['format']!r}; this server takes {FORMAT}", "update optest")
    try:
        message = _Message.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(one) for one in first["loc"]) or "the body"
        raise UsageError(f"{place}: {first['msg']} ({error.error_count()} mistakes)") from None
    run = RunInfo.from_dict(message.run.model_dump(exclude_unset=True))
    if any(one.backend != message.run.backend for one in message.results):
        raise UsageError("a result is of another backend than its run")
    summary = None if message.summary is None else json.dumps(message.summary)
    return run, [CaseResult.from_dict(one.model_dump(exclude_unset=True)) for one in message.results], summary
