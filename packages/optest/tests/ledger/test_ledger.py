from __future__ import annotations

import math
import sqlite3
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import Connection, create_engine, inspect, text
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateTable

from optest.core.comparator import compare
from optest.core.result import CaseResult, RunInfo, Status
from optest.core.summary import Summary
from optest.errors import LedgerError, UsageError
from optest.ledger import Ledger, LedgerReporter
from optest.ledger.tables import METADATA, MIGRATIONS, migrate, version_of

BACKEND = {"kind": "gpu", "name": "cuda-runtime", "chip": None}


def run_info(number: int, **fields: Any) -> RunInfo:
    return RunInfo(
        run_id=f"2026010{number}-000000-{number:06x}",
        started=f"2026-01-0{number}T00:00:00+00:00",
        version="0.1.0",
        command_line="optest run",
        backend={**BACKEND, **fields},
        environment={"python": "3.11"},
        seed=3,
    )


def result(number: int, status: Status = Status.PASSED, error: float = 0.0, **fields: Any) -> CaseResult:
    found = compare(np.float32([1 + error, 2]), np.float32([1, 2]))
    given = {
        "case_id": f"{number:016x}", "op": "relu" if number < 100 else "norm", "category": "activation",
        "dtypes": ("float32", "int64"), "shapes": {"input0": (2,), "input1": ()},
        "attributes": {"p": math.inf, "pads": (1, (2, 3))}, "phase": "forward", "seed": 3, "backend": BACKEND,
        "status": status, "comparisons": ({"output": "output0", **found.to_dict()},), "duration_s": 0.001,
    }  # fmt: skip
    return CaseResult(**{**given, **fields})


def record(ledger: Ledger, run: RunInfo, results: list[CaseResult]) -> None:
    reporter, summary = LedgerReporter(ledger), Summary()
    reporter.on_start(run, len(results))
    for one in results:
        summary.add(one)
        reporter.on_case_result(one)
    reporter.on_complete(summary)


def rows_of(ledger: Ledger) -> AbstractContextManager[Connection]:
    """Begin a separate transaction on the database of ``ledger``."""
    url = ledger.place if "://" in ledger.place else f"sqlite:///{ledger.place}"
    url = url.replace("postgresql:", "postgresql+psycopg:")
    return create_engine(url).begin()


def test_results_come_back_as_they_were(ledger: Ledger) -> None:
    results = [result(i) for i in range(1201)] + [
        result(2000, Status.CRASHED, signal="SIGSEGV", stderr_tail="é\x00", comparisons=(), rerun="optest …"),
    ]
    record(ledger, run_info(1), results)
    assert ledger.runs() == [run_info(1)]
    assert list(ledger.results(run_info(1).run_id)) == [replace(one, comparisons=()) for one in results]
    assert ledger.find_case(f"{2000:016x}") == replace(results[-1], comparisons=())


def test_find_case_takes_the_newest_and_insists_on_one(ledger: Ledger) -> None:
    for number, status in ((2, Status.MISMATCH), (1, Status.PASSED)):
        record(ledger, run_info(number), [result(0xA1, status), result(0xA2)])
    found = ledger.find_case(f"{0xA1:016x}")
    assert found is not None
    assert found.status is Status.MISMATCH
    assert ledger.find_case("ffff") is None
    assert ledger.find_case("%") is None
    with pytest.raises(UsageError, match="several cases have ids that begin with 000"):
        ledger.find_case("000")


def test_diff(ledger: Ledger) -> None:
    record(
        ledger,
        run_info(1),
        [
            result(1),
            result(2, Status.MISMATCH),
            result(3),
            result(4),
            result(5),
            result(6, error=1e-6),
            result(7),
        ],
    )
    record(
        ledger,
        run_info(2),
        [
            result(1, Status.MISMATCH, 1.0, reason="worse\nand more"),
            result(2),
            result(3, Status.UNSUPPORTED, reason="not any more"),
            result(4, duration_s=0.5),
            result(5, duration_s=0.004),
            result(6, error=2e-6),
            result(8, Status.CRASHED),
            result(9),
        ],
    )
    found = ledger.diff("20260101", "latest")
    assert [(kind, int(case, 16)) for kind, case, _, _ in found.rows()] == [
        ("newly failing", 1),
        ("newly failing", 8),
        ("newly passing", 2),
        ("other status", 3),
        ("accuracy", 1),
        ("accuracy", 6),
        ("time", 4),
    ]
    changes = {(kind, int(case, 16)): change for kind, case, _, change in found.rows()}
    assert changes["newly failing", 1] == "passed → mismatch: worse"
    assert changes["newly failing", 8] == "new case, crashed: "
    assert changes["time", 4] == "1 ms → 500 ms"
    assert changes["accuracy", 6] == ("output0: max abs 9.54e-07 → 2.03e-06, 8 → 17 ULP")
    assert (found.common, found.only_a, found.only_b) == (6, 1, 2)
    assert "6 cases in both, 1 only in the first, 2 only in the second; 2 newly failing" in found.text()
    assert found.to_dict()["newly_passing"][0]["op"] == "relu"
    same = ledger.diff(run_info(1).run_id, run_info(1).run_id)
    assert same.rows() == []


def test_unknown_runs_are_told_with_those_that_exist(ledger: Ledger) -> None:
    with pytest.raises(UsageError, match="it has none at all"):
        ledger.diff("latest", "latest")
    record(ledger, run_info(1), [])
    record(ledger, run_info(2), [])
    with pytest.raises(UsageError, match=f"0 runs .* begin with 'x'; the newest are {run_info(2).run_id}"):
        ledger.diff("x", "latest")
    with pytest.raises(UsageError, match="2 runs"):
        ledger.diff("2026", "latest")


def test_history(ledger: Ledger) -> None:
    record(ledger, run_info(1), [result(1, error=1e-6), result(2, Status.MISMATCH, 1.0), result(101)])
    record(ledger, run_info(2, name="other"), [result(1), result(2, Status.UNSUPPORTED)])
    first, second = ledger.history("relu")
    counts = ("passed", "failed", "other")
    assert [first[name] for name in counts] == [1, 1, 0]
    assert [second[name] for name in counts] == [1, 0, 1]
    assert first["max_ulp"] > 1000
    assert [one["backend"] for one in ledger.history("relu", backend="other")] == ["other"]
    assert len(ledger.history("relu", dtype="int64")) == 2
    assert ledger.history("relu", dtype="int") == []
    assert ledger.history("conv2d") == []


def test_of_several_runs_the_newest_record_of_a_case_counts(ledger: Ledger) -> None:
    """The newest run is the one that started last, not the one that was written last."""
    newest, oldest, another = run_info(3), run_info(1), run_info(2)
    record(ledger, newest, [result(1), result(2, Status.MISMATCH, 1.0)])
    record(ledger, oldest, [result(1, Status.CRASHED, comparisons=()), result(2), result(200, error=1.0)])
    record(ledger, another, [result(300)])
    runs = [oldest.run_id, newest.run_id]
    found = {one.case_id: one for one in ledger.cases(runs, metrics=True)}
    assert {int(name, 16): one.status for name, one in found.items()} == {
        1: Status.PASSED, 2: Status.MISMATCH, 200: Status.PASSED,
    }  # fmt: skip
    assert [found[f"{number:016x}"].ulp for number in (1, 200)] == [0.0, 2.0**23]
    assert [one.case_id for one in ledger.cases(runs, op="norm")] == [f"{200:016x}"]
    assert [one.case_id for one in ledger.cases(runs, statuses=[Status.CRASHED])] == []
    assert sorted((one.op, one.status, one.cases) for one in ledger.groups(runs)) == [
        ("norm", Status.PASSED, 1), ("relu", Status.MISMATCH, 1), ("relu", Status.PASSED, 1),
    ]  # fmt: skip


def test_merge_adds_what_is_missing_once(ledger: Ledger, tmp_path: Path) -> None:
    other = Ledger(tmp_path / "other.sqlite")
    record(ledger, run_info(1), [result(1)])
    record(other, run_info(1), [result(1)])
    record(other, run_info(2), [result(i, error=1e-6) for i in range(2300)])
    assert ledger.merge(other) == 1
    assert ledger.merge(other) == 0
    assert [one.run_id for one in ledger.runs()] == [run_info(1).run_id, run_info(2).run_id]
    assert list(ledger.results(run_info(2).run_id)) == list(other.results(run_info(2).run_id))
    assert ledger.history("norm") == other.history("norm")
    with rows_of(ledger) as connection:
        assert connection.execute(text("select count(*) from metrics")).scalar() == 2301
        assert connection.execute(text("select count(*) from environments")).scalar() == 1
        assert connection.execute(text("select count(summary) from runs")).scalar() == 2
        if connection.dialect.name == "sqlite":  # a server checks foreign keys itself
            assert connection.execute(text("pragma foreign_key_check")).fetchall() == []


def test_merge_completes_a_run_that_came_too_early(ledger: Ledger, tmp_path: Path) -> None:
    """A run that was still going on at the first merge is whole after the next one."""
    other, run = Ledger(tmp_path / "other.sqlite"), run_info(1)
    other.start(run)
    other.append(run.run_id, [result(1)])
    assert ledger.merge(other) == 1
    other.append(run.run_id, [result(2), result(3)])
    other.finish(run.run_id, Summary(3))
    assert ledger.merge(other) == 1
    assert {one.case_id for one in ledger.results(run.run_id)} == {result(i).case_id for i in (1, 2, 3)}
    assert ledger.summary(run.run_id) is not None
    assert ledger.merge(other) == 0


def test_merge_refuses_another_run_with_a_known_id(ledger: Ledger, tmp_path: Path) -> None:
    other = Ledger(tmp_path / "other.sqlite")
    record(ledger, run_info(2), [result(1)])
    record(other, run_info(1), [result(1)])
    record(other, replace(run_info(2), seed=7), [result(2)])
    with pytest.raises(UsageError, match=f"another run has the id {run_info(2).run_id}: seed differ"):
        ledger.merge(other)
    assert [one.run_id for one in ledger.runs()] == [run_info(2).run_id]


def test_an_older_ledger_is_migrated_with_its_content(tmp_path: Path) -> None:
    """Ledgers of every earlier version are migrated to the current one, and nothing in them is lost."""
    file = tmp_path / "old.sqlite"
    for version in range(1, len(MIGRATIONS)):
        file.unlink(missing_ok=True)
        engine = create_engine(f"sqlite:///{file}")
        with engine.begin() as connection:
            migrate(connection, to=version)
            connection.execute(text("insert into environments (facts) values ('{}')"))
            connection.execute(text("insert into backends (kind, name, chip) values ('gpu', 'g', '')"))
            connection.execute(
                text(
                    "insert into runs (run_id, started, version, command_line, seed, environment, backend) "
                    "values ('r', '2026-01-01T00:00:00+00:00', '0', 'c', 0, 1, 1)"
                )
            )
        ledger = Ledger(file)
        assert [one.run_id for one in ledger.runs()] == ["r"]
        with engine.connect() as connection:
            assert version_of(connection) == len(MIGRATIONS)
            indexes = {one["name"] for one in inspect(connection).get_indexes("cases")}
        assert {"cases_by_op", "cases_by_case_id"} <= indexes
        record(ledger, run_info(1), [result(1)])


def test_a_migrated_ledger_has_the_tables_of_a_new_one(tmp_path: Path) -> None:
    ledger, file = Ledger(tmp_path / "new.sqlite"), tmp_path / "stepwise.sqlite"
    for version in range(1, len(MIGRATIONS) + 1):
        with create_engine(f"sqlite:///{file}").begin() as connection:
            migrate(connection, to=version)
    query = "select type, name, sql from sqlite_master order by name"
    with sqlite3.connect(file) as stepwise, sqlite3.connect(ledger.place) as new:
        assert stepwise.execute(query).fetchall() == new.execute(query).fetchall()


def test_a_ledger_without_accuracy_gets_its_columns(ledger: Ledger) -> None:
    record(ledger, run_info(1), [result(1)])
    with rows_of(ledger) as connection:
        for name in ("error_ulp", "control_ulp"):
            connection.execute(text(f"alter table metrics drop column {name}"))
        connection.execute(text("update optest_schema set version = 3"))
    again = Ledger(ledger.place)
    [row] = again.cases(run_info(1).run_id, metrics=True)
    assert (row.ulp, row.control_ulp) == (0.0, None)
    measured = {"output": "output0", **compare(np.float32([1]), np.float32([1])).to_dict()}
    measured["accuracy"] = {"ulp_error": 0.75, "control_ulp_error": 0.5}
    record(again, run_info(2), [result(1, comparisons=(measured,))])
    [row] = again.cases(run_info(2).run_id, metrics=True)
    assert (row.ulp, row.control_ulp) == (0.75, 0.5)


def test_a_newer_ledger_is_left_alone(ledger: Ledger) -> None:
    with rows_of(ledger) as connection:
        connection.execute(text("update optest_schema set version = 99"))
    with pytest.raises(LedgerError, match="has version 99; this optest knows versions up to"):
        Ledger(ledger.place)


@pytest.mark.parametrize(
    "content", [b"no database at all, but longer than a header" * 50, b"SQLite format 3\0" + b"x" * 4000]
)
def test_a_corrupt_ledger_is_one_message(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "ledger.sqlite"
    file.write_bytes(content)
    with pytest.raises(LedgerError, match=f"the ledger {file} cannot be read: ") as caught:
        Ledger(file)
    assert "--ledger none" in str(caught.value)
    assert file.read_bytes() == content


def test_a_read_only_ledger_is_read_but_not_written(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.sqlite")
    record(ledger, run_info(1), [result(1)])
    read_only = Ledger(f"sqlite:///file:{ledger.place}?mode=ro&uri=true")
    assert len(read_only.runs()) == 1
    with pytest.raises(LedgerError, match="cannot be written: attempt to write a readonly database"):
        LedgerReporter(read_only).on_start(run_info(2), 0)


def test_places_that_are_none(tmp_path: Path) -> None:
    for place in ("nosuchdialect://x/y", "postgresql+nosuchdriver://x/y"):
        with pytest.raises(LedgerError, match="cannot be used"):
            Ledger(place)
    with pytest.raises(LedgerError, match="there is no ledger"):
        Ledger(tmp_path / "none.sqlite", create=False)
    assert not (tmp_path / "none.sqlite").exists()
    (tmp_path / "file").touch()
    with pytest.raises(LedgerError, match="cannot be made"):
        Ledger(tmp_path / "file" / "ledger.sqlite")


def test_results_of_a_killed_run_stay(ledger: Ledger) -> None:
    """Results that were appended together are kept, even if the run has no end."""
    ledger.start(run_info(1))
    ledger.append(run_info(1).run_id, [result(1)])
    with pytest.raises(LedgerError):
        ledger.append(run_info(1).run_id, [result(2), result(1)])  # all or nothing
    assert [one.case_id for one in ledger.results(run_info(1).run_id)] == [result(1).case_id]


def test_cases_of_other_inputs_are_not_compared(ledger: Ledger) -> None:
    """A case's id does not cover its generator's code, but the digest of its inputs shows changes."""
    old = [result(i, inputs=f"{i:016x}") for i in (1, 2, 3)] + [result(4), result(5, inputs="f" * 16)]
    new = [
        result(1, inputs=f"{1:016x}", status=Status.MISMATCH),
        result(2, inputs="e" * 16, status=Status.MISMATCH, reason="wrong"),
        result(3, inputs="e" * 16, error=1e-3),
        result(4, inputs="d" * 16),
        result(5),
    ]
    record(ledger, run_info(1), old)
    record(ledger, run_info(2), new)
    assert next(iter(ledger.results(run_info(2).run_id))).inputs == f"{1:016x}"
    found = ledger.diff(run_info(1).run_id, run_info(2).run_id)
    assert (found.common, found.other_inputs, found.only_a, found.only_b) == (3, 2, 0, 0)
    assert [(one.case_id[-1], one.text.partition(":")[0]) for one in found.newly_failing] == [
        ("1", "passed → mismatch"), ("2", "new case, mismatch"),
    ]  # fmt: skip
    assert found.accuracy == []
    assert "2 with other inputs, not compared" in found.text()


def test_runs_that_are_not_whole_are_told(ledger: Ledger) -> None:
    """Diffs and histories report unfinished runs, however they ended."""
    cut = [Summary(3, interrupted=True), Summary(3, stopped=True), Summary(3), None]
    for number, summary in enumerate(cut, 1):
        run = replace(run_info(number), planned=3)
        ledger.start(run)
        ledger.append(run.run_id, [result(1)])
        if summary is not None:
            ledger.finish(run.run_id, summary)
    record(ledger, run_info(5), [result(1)])
    rest = ": 1 of 3 cases have a result"
    whys = ["interrupted", "stopped at a failure", "interrupted", "still going on, or killed"]
    assert ledger.unfinished() == {run_info(i).run_id: why + rest for i, why in enumerate(whys, 1)}
    warned = ledger.diff(run_info(1).run_id, run_info(5).run_id).warnings
    assert warned == (f"the run {run_info(1).run_id} is not whole: interrupted{rest}",)
    assert [one["unfinished"] for one in ledger.history("relu")] == [*(why + rest for why in whys), ""]


def test_the_tables_are_those_of_postgresql_too() -> None:
    made = [str(CreateTable(table).compile(dialect=postgresql.dialect())) for table in METADATA.sorted_tables]
    assert any("SERIAL" in one for one in made)
