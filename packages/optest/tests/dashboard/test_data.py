from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from optest.core.result import Status
from optest.dashboard import data
from optest.dashboard.pages import MEDIA_TYPES, POLICY, asset, script
from optest.dashboard.site import write_site
from optest.errors import ReportError, UsageError


def test_an_overview_counts_every_case(recorder: Any) -> None:
    run = recorder.run(
        [
            recorder.case("add", "float32"),
            recorder.case("add", "float32", sample=1, status=Status.MISMATCH),
            recorder.case("add", "int64", phase="out"),
            recorder.case("abs", "bfloat16", category="a first category"),
        ]
    )
    found = data.overview(recorder.ledger, run)
    assert found == {
        "operators": ["abs", "add"],
        "keys": [data.key_of("abs"), data.key_of("add")],
        "categories": ["a first category", "elementwise"],
        "dtypes": ["float32", "bfloat16", "int64"],
        "phases": ["forward", "out"],
        "cells": [[0, 1, 0, [0, 1]], [1, 0, 0, [0, 1, 1, 1]], [1, 2, 1, [0, 1]]],
    }


def test_a_case_of_several_dtypes_stands_under_its_inexact_one(recorder: Any) -> None:
    run = recorder.run([recorder.case("gather", dtypes=("int64", "float32")), recorder.case("and", "bool")])
    assert data.overview(recorder.ledger, run)["dtypes"] == ["float32", "bool"]


def compared(**numbers: Any) -> tuple[dict[str, Any], ...]:
    known = {"output": "o", "passed": True, "count": 6, "mismatches": 0, "max_abs": 0.0, "max_rel": 0.0}
    return ({**known, "max_ulp": None, "accuracy": None, **numbers},)


def test_histograms_take_passing_cases_and_all_numbers(recorder: Any) -> None:
    """Histograms show errors against a wider reference if there is one, with the control's beside them."""
    wide = [0.0, 0.5, 3.0, 4.0, math.inf]
    errors = [compared(max_ulp=9.0, accuracy={"ulp_error": one, "control_ulp_error": 1.0}) for one in wide]
    errors += [compared(max_ulp=3.0), compared(), ()]
    cases = [
        recorder.case("exp", sample=number, comparisons=one, duration_s=1e-3)
        for number, one in enumerate(errors)
    ]
    run = recorder.run([*cases, recorder.case("exp", sample=99, status=Status.MISMATCH)])
    found = data.distributions(recorder.ledger.cases(run, metrics=True))
    assert found["ulp"]["float32"] == [(-1, 1), (0, 1), (2, 3), (99, 1)]
    assert found["control_ulp"]["float32"] == [(0, 5)]
    assert found["time"]["float32"] == [(9, 8)]
    details = data.operator_cases(recorder.ledger.cases(run, metrics=True))["cases"]
    assert [one.get("ulp") for one in details] == [0.0, 0.5, 3.0, 4.0, "inf", 3.0, None, None, None]


def test_scripts_carry_data_and_nothing_else() -> None:
    text = script("index", {"a": '</script>");alert(1)//\u2028', "__proto__": 1})
    assert text.startswith('optest.receive("index", JSON.parse("')
    assert text.isascii()
    assert text.count("\n") == 1
    with pytest.raises(ValueError, match="Out of range float"):
        script("index", {"a": math.nan})


def test_a_site_is_whole(hostile: Any, read: Callable[[str | Path], Any], tmp_path: Path) -> None:
    shown = write_site(hostile.ledger, tmp_path / "site")
    folder = tmp_path / "site"
    for name in MEDIA_TYPES:
        assert (folder / name).read_bytes() == asset(name)
    index = read(folder / "data" / "index.js")
    assert [one["run_id"] for one in index["runs"]] == [one.title for one in shown]
    assert [(one["passed"], one["failed"], one["other"]) for one in index["trend"]] == [(8, 2, 1), (9, 1, 1)]
    for run in index["runs"]:
        overview = read(folder / "data" / run["key"] / "overview.js")
        assert sum(cell[3][1] for cell in overview["cells"]) == 11
        cases = [
            one
            for key in overview["keys"]
            for one in read(folder / "data" / run["key"] / f"{key}.js")["cases"]
        ]
        assert len(cases) == 11
        assert read(folder / "data" / "coverage" / f"{run['coverage']}.js")["backend"] == "torchstone"
        listed = read(folder / "data" / run["key"] / "failures.js")
        assert listed["count"] == sum(one["status"] == "mismatch" for one in cases)
    files = {one.relative_to(folder).as_posix() for one in folder.rglob("*") if one.is_file()}
    assert all(re.fullmatch(r"[a-z0-9/]+\.(js|css|html)", one) for one in files)


def test_runs_of_a_backend_as_one_have_the_newest_result_of_every_case(
    recorder: Any, read: Callable[[str | Path], Any], tmp_path: Path
) -> None:
    """This holds if an older run was recorded later, and for the list of failures, too."""
    mended, broken = recorder.case("add"), recorder.case("add", status=Status.MISMATCH, reason="wrong sign")
    other = recorder.case("abs", comparisons=compared(max_ulp=2.0))
    recorder.run([mended], started="2026-03-02T00:00:00+00:00")
    recorder.run([broken, other], started="2026-03-01T00:00:00+00:00")
    recorder.run([recorder.case("neg")], backend={"kind": "torch", "name": "another"})
    [shown] = write_site(recorder.ledger, tmp_path / "site", backends=["torchstone"])
    [listed] = read(tmp_path / "site" / "data" / "index.js")["runs"]
    assert listed["run_id"] == shown.title == "newest results of 2 runs"
    folder = tmp_path / "site" / "data" / listed["key"]
    overview = read(folder / "overview.js")
    assert (overview["operators"], overview["cells"]) == (
        ["abs", "add"],
        [[0, 0, 0, [0, 1]], [1, 0, 0, [0, 1]]],
    )
    assert read(folder / "failures.js")["count"] == 0
    assert read(folder / "distributions.js")["ulp"] == {"float32": [[1, 1]]}
    [case] = read(folder / f"{data.key_of('add')}.js")["cases"]
    assert case["status"] == "passed"
    again = write_site(recorder.ledger, tmp_path / "both", [recorder.ledger.runs()[0].run_id], ["torchstone"])
    assert [bool(one.together) for one in again] == [False, True]
    with pytest.raises(UsageError, match="no such run is of the backend 'nobody'"):
        write_site(recorder.ledger, tmp_path / "none", backends=["nobody"])
    assert not (tmp_path / "none").exists()


def test_assets_load_nothing_from_elsewhere() -> None:
    for name in MEDIA_TYPES:
        text = asset(name).decode().replace("http://www.w3.org/2000/svg", "")
        assert "//" not in re.sub(r"^\s*//.*$|\s// .*$", "", text, flags=re.MULTILINE).replace("https?:", "")
        assert "innerHTML" not in text
    assert POLICY in asset("index.html").decode()


def test_what_cannot_be_shown(recorder: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no run"):
        write_site(recorder.ledger, tmp_path / "site")
    assert not (tmp_path / "site").exists()
    recorder.run([recorder.case("add")])
    (tmp_path / "site").touch()
    with pytest.raises(ReportError, match="cannot be written"):
        write_site(recorder.ledger, tmp_path / "site")
    with pytest.raises(UsageError, match="0 runs"):
        write_site(recorder.ledger, tmp_path / "other", ["nope"])
