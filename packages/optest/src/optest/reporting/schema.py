"""The format of a JSON report: models that check it, and the JSON Schema made from them.

Every part of a report is checked as text just before it is written. ``VERSION`` changes
when a reader of the old format would misread the new one.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..core.result import Status
from ..errors import ReportError

VERSION = 1

Special = Literal["nan", "inf", "-inf"]
"""Numbers that JSON cannot express."""
Number = int | float | Special
Count = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(ge=0)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class Complex(_Model):
    """A complex value."""

    real: Number
    imag: Number


Value = bool | Number | Complex


class ToleranceRecord(_Model):
    """The tolerance that a comparison used."""

    rtol: float
    atol: float
    equal_nan: bool
    signed_zero: bool
    factor: float


class WorstRecord(_Model):
    """The element with the largest error."""

    index: list[int]
    actual: Value
    expected: Value
    abs_error: Number
    ulp_error: int | None


class AccuracyRecord(_Model):
    """The errors against a wider reference, and those of the control."""

    factor: float
    error: Number
    control_error: Number
    ulp_error: Number
    control_ulp_error: Number
    violations: Count
    excused: Count


class ComparisonRecord(_Model):
    """The verdict on one output."""

    output: str
    mode: Literal["allclose", "accuracy", "exact"]
    tolerance: ToleranceRecord
    passed_by: Literal["exact", "tolerance", "accuracy"] | None
    passed: bool
    shape: list[int]
    expected_shape: list[int]
    dtype: str
    expected_dtype: str
    count: Count
    mismatches: Count
    mismatch_share: float
    max_abs: Number
    max_rel: Number
    max_ulp: int | None
    nan_mismatches: Count
    inf_mismatches: Count
    sign_mismatches: Count
    signed_zero_mismatches: Count
    worst: WorstRecord | None
    accuracy: AccuracyRecord | None


class BackendRecord(_Model):
    """The backend that cases ran on."""

    kind: str
    name: str | None
    chip: str | None
    config: str | None = None


class DeclaredRecord(_Model):
    """The dtypes and phases that an entry of a database has according to its own record."""

    dtypes: list[str]
    gradients: list[str]
    phases: list[str]
    entries: Count


class OriginRecord(_Model):
    """The place of a case in one of PyTorch's databases."""

    suite: str
    sample: int | str
    note: str
    form: str
    overloads: list[str]
    among: Count
    values: str
    declared: DeclaredRecord | None


class CaseRecord(_Model):
    """One case and its result."""

    case_id: Annotated[str, Field(pattern="^[0-9a-f]{16}$")]
    op: str
    category: str
    dtypes: list[str]
    shapes: dict[str, list[Count]]
    attributes: dict[str, Any]
    phase: str
    seed: int
    backend: BackendRecord
    status: Annotated[str, Field(pattern=f"^({'|'.join(one.value for one in Status)})$")]
    reason: str
    comparisons: list[ComparisonRecord]
    duration_s: Seconds
    stderr_tail: str
    exit_code: int | None
    signal: str | None
    attempts: Annotated[int, Field(ge=1)]
    flaky: bool
    rerun: str
    origin: OriginRecord | None
    inputs: str = ""
    settings: str = ""


class RunRecord(_Model):
    """The run."""

    run_id: str
    started: str
    version: str
    command_line: str
    backend: BackendRecord
    environment: dict[str, str]
    seed: int
    planned: Count | None


class SummaryRecord(_Model):
    """The numbers at the end."""

    total: Count | None
    ran: Count
    missing: Count | None
    failed: Count
    counts: dict[str, Count]
    flaky: Count
    resumed: Count
    duration_s: Seconds
    interrupted: bool
    stopped: bool
    failures: list[str]
    problems: list[str]
    seconds: dict[str, Seconds]


class Report(_Model):
    """A whole report."""

    model_config = ConfigDict(title="optest report")

    schema_version: Literal[1]
    run: RunRecord
    cases: list[CaseRecord]
    summary: SummaryRecord


REPORT_SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    **Report.model_json_schema(),
}
"""The JSON Schema (draft 2020-12) of a report."""


def check(text: str, model: type[BaseModel] = Report) -> None:
    """Check JSON ``text`` of a report, or of a part of one; raises :class:`ReportError`."""
    try:
        model.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "the document"
        raise ReportError(
            f"the report does not agree with its schema at {place}: {first['msg']} "
            f"(found {first['input']!r})",
            "`optest schema report` prints the schema",
        ) from error
