from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import jsonschema
import ml_dtypes
import numpy as np
import pytest

from optest.core.comparison import Accuracy, Comparison, Worst
from optest.core.result import CaseResult, RunInfo, Status
from optest.core.summary import Summary
from optest.core.tolerance import Tolerance
from optest.errors import ReportError, UnknownName
from optest.reporting import FILE_REPORTERS, make_reporter, schema
from optest.reporting.json_report import JsonReporter
from optest.reporting.schema import REPORT_SCHEMA, check

Play = Callable[..., Summary]


def validator() -> jsonschema.Draft202012Validator:
    jsonschema.Draft202012Validator.check_schema(REPORT_SCHEMA)
    return jsonschema.Draft202012Validator(REPORT_SCHEMA)


def test_a_report_agrees_with_its_schema(
    tmp_path: Path, play: Play, results: tuple[CaseResult, ...], compared: Callable[..., dict[str, Any]]
) -> None:
    several = (
        compared(np.complex64([1 + 2j, complex(math.nan, math.inf)]), np.complex64([1, 2]), "output0"),
        compared(np.int64([2**62]), np.int64([-(2**62)]), "output1"),
        compared(np.ones(3, np.float32), np.ones(2, np.float64), "output2"),
        compared(
            np.array([1, math.nan], ml_dtypes.bfloat16), np.array([1, 2], ml_dtypes.bfloat16), "output3"
        ),
    )
    strange = replace(results[0], comparisons=several, attributes={"p": math.inf, "pads": (1, (2, math.nan))})
    play(JsonReporter(tmp_path / "r.json"), [*results, strange])
    text = (tmp_path / "r.json").read_text()
    assert "Infinity" not in text.replace('"Infinity"', "")
    data = json.loads(text, parse_constant=pytest.fail)
    validator().validate(data)
    check(text)
    assert [one["status"] for one in data["cases"]] == ["passed", "mismatch", "crashed", "xfailed", "passed"]
    assert data["cases"][-1]["attributes"] == {"p": "inf", "pads": [1, [2, "nan"]]}
    assert data["summary"]["failed"] == 2
    assert CaseResult.from_dict(data["cases"][1]) == replace(results[1])


def test_an_empty_report_is_one(tmp_path: Path, play: Play) -> None:
    play(JsonReporter(tmp_path / "r.json"), [])
    validator().validate(json.loads((tmp_path / "r.json").read_text()))


@pytest.mark.parametrize(
    ("model", "record"),
    [
        (schema.CaseRecord, CaseResult),
        (schema.RunRecord, RunInfo),
        (schema.ToleranceRecord, Tolerance),
        (schema.WorstRecord, Worst),
        (schema.AccuracyRecord, Accuracy),
    ],
)
def test_the_schema_has_the_records_fields(model: Any, record: type) -> None:
    assert set(model.model_fields) == {one.name for one in fields(record)}


def test_the_schema_has_all_of_a_comparison_and_a_summary() -> None:
    derived = {"output", "passed", "mismatch_share"}
    assert set(schema.ComparisonRecord.model_fields) == {one.name for one in fields(Comparison)} | derived
    assert set(schema.SummaryRecord.model_fields) == set(Summary().to_dict())


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("schema_version",), 2),
        (("cases", 0, "status"), "fine"),
        (("cases", 0, "case_id"), "xyz"),
        (("cases", 0, "attempts"), 0),
        (("cases", 0, "shapes"), {"input0": [-1]}),
        (("cases", 1, "comparisons", 0, "max_abs"), "huge"),
        (("cases", 1, "comparisons", 0, "worst"), {}),
        (("summary", "failed"), -1),
        (("summary", "extra"), 1),
        (("run", "seed"), "7"),
        (("cases",), {}),
    ],
)
def test_both_forms_of_the_schema_refuse_the_same(
    tmp_path: Path, play: Play, path: tuple[str | int, ...], value: Any
) -> None:
    play(JsonReporter(tmp_path / "r.json"))
    data = json.loads((tmp_path / "r.json").read_text())
    place = data
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    with pytest.raises(jsonschema.ValidationError):
        validator().validate(data)
    with pytest.raises(ReportError, match=str(path[0])):
        check(json.dumps(data))


def test_a_result_against_the_schema_is_never_written(
    tmp_path: Path, results: tuple[CaseResult, ...], play: Play
) -> None:
    target = tmp_path / "r.json"
    target.write_text("the report of before")
    with pytest.raises(ReportError, match=r"schema at case_id: .* \(found 'short'\)"):
        play(JsonReporter(target), [results[0], replace(results[0], case_id="short")])
    assert target.read_text() == "the report of before"


def test_kinds_and_default_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, play: Play) -> None:
    monkeypatch.chdir(tmp_path)
    for kind in FILE_REPORTERS:
        play(make_reporter(kind))
    names = {"optest-report.json", "optest-report.xml", "optest-report.html"}
    assert {one.name for one in tmp_path.iterdir()} == names
    with pytest.raises(UnknownName, match="did you mean json"):
        make_reporter("jsn")


def test_statuses_are_those_of_the_design() -> None:
    assert [one.value for one in Status] == [
        "passed", "mismatch", "error", "unsupported", "fallback",
        "crashed", "timed_out", "skipped", "xfailed", "xpassed",
    ]  # fmt: skip
