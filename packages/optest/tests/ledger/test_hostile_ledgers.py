"""Ledgers with odd names and odd records: passwords, future dates, large seeds, no home folder."""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import Connection, inspect, text, update

from optest.cli.app import cli
from optest.coverage.evidence import collect
from optest.dashboard.wire import decode, encode
from optest.errors import LedgerError, UsageError
from optest.ledger import Ledger
from optest.ledger.tables import MIGRATIONS, SCHEMA, migrate, version_of

PASSWORD = "s3cr3t"
ADDRESSES = (
    f"postgresql://me:{PASSWORD}@127.0.0.1:1/db",
    f"postgresql://127.0.0.1:1/db?user=me&password={PASSWORD}",
    f"postgresql://me:{PASSWORD}@[::1/db",
    f"postgresql://me:{PASSWORD}@host:port/db",
    f"nodatabase://me:{PASSWORD}@host/db",
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPTEST_HOME", str(tmp_path / "home"))
    for name in ("OPTEST_LEDGER", "OPTEST_PLUGINS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def call() -> Callable[..., Result]:
    def run(*words: str, code: int) -> Result:
        result = CliRunner().invoke(cli, words)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        assert result.exit_code == code, result.output
        return result

    return run


Call = Callable[..., Result]
RELU = ("run", "--op", "relu", "--dtype", "float32", "--shape", "2", "--backend", "stub")


@pytest.mark.parametrize("address", ADDRESSES)
def test_no_message_has_the_password(call: Call, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LedgerError) as caught:
        Ledger(address)
    assert PASSWORD not in str(caught.value)
    shown = [
        call(*RELU, "--ledger", address, code=3),
        call("--traceback", "history", "relu", "--ledger", address, code=3),
        call("merge", address, "--json", code=3),
        call("serve", "--ledger", address, code=3),
        call("publish", "--url", f"https://me:{PASSWORD}@host", code=2),
    ]
    monkeypatch.setenv("OPTEST_LEDGER", address)
    shown.append(call("coverage", code=3))
    monkeypatch.setenv("OPTEST_TOKEN", "token")
    shown.append(call("publish", "--url", f"https://me:{PASSWORD}@host", code=2))
    for result in shown:
        assert PASSWORD not in result.output


def test_no_record_has_the_password(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["optest", *RELU, "--attr", f"note=postgresql://me:{PASSWORD}@host/db"]
    monkeypatch.setattr("sys.argv", words)
    call(*RELU, "--report", "json:r.json", "--report", "html:r.html", "--report", "junit:r.xml", code=0)
    files = [file for file in Path().rglob("*") if file.is_file()]
    assert "me:***@host" in json.loads(Path("r.json").read_text())["run"]["command_line"]
    assert [file for file in files if PASSWORD.encode() in file.read_bytes()] == []


def test_none_is_no_name_of_a_ledger(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    told = "'none' stands for no ledger, and here one is needed"
    needing = (("serve",), ("coverage",), ("stage",), ("dashboard", "-o", "site"), ("history", "relu"))
    for words in (*needing, ("diff", "a", "b"), ("merge", "x")):
        if words[0] == "merge":
            Ledger("x").close()
        assert told in call(*words, "--ledger", "none", code=2).output
    assert told in call("merge", "none", code=2).output
    monkeypatch.setenv("OPTEST_LEDGER", "none")
    call(*RELU, code=0)
    assert told in call("coverage", code=2).output
    assert not Path("none").exists()
    assert not Path("home/ledger.sqlite").exists()
    call(*RELU, "--ledger", "./none", code=0)
    assert Path("none").is_file()


def test_no_home_and_no_user(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("OPTEST_HOME", "XDG_STATE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    result = call(*RELU, code=3)
    assert "there is no folder for ledger and journals: Could not determine home" in result.output
    assert "OPTEST_HOME names one to use" in result.output


def test_seeds_have_63_bits(call: Call, ledger: Ledger, recorder: Any) -> None:
    largest = 2**63 - 1
    call(*RELU, "--seed", str(largest), "--report", "json:r.json", code=0)
    found = json.loads(Path("r.json").read_text())
    assert (found["run"]["seed"], found["cases"][0]["seed"]) == (largest, largest)
    own = Ledger("home/ledger.sqlite")
    [run] = own.runs()
    [results] = own.outgoing(run)
    sent, cases, _ = decode(encode(run, results, None))
    assert ledger.add(sent, cases) == 1
    assert ledger.runs() == [run]
    assert [one.seed for one in ledger.results(run.run_id)] == [largest]


def test_an_older_ledger_is_widened(ledger: Ledger) -> None:
    """On a server, ledgers before version 5 have seeds of 32 bits. They are widened to 64 bits."""
    with ledger._engine.begin() as connection:
        if connection.dialect.name == "postgresql":  # SQLite's integers always have 64 bits
            connection.execute(text("ALTER TABLE runs ALTER COLUMN seed TYPE INTEGER"))
            assert _kind_of_seed(connection) == "INTEGER"
        connection.execute(update(SCHEMA).values(version=4))
        migrate(connection)
        assert version_of(connection) == len(MIGRATIONS)
        assert _kind_of_seed(connection) == "BIGINT"


def _kind_of_seed(connection: Connection) -> str:
    return next(str(one["type"]) for one in inspect(connection).get_columns("runs") if one["name"] == "seed")


def test_a_run_dated_in_the_future_hides_no_other(recorder: Any) -> None:
    ahead = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=3650)
    failed = {"status": "mismatch", "reason": "wrong"}
    future = recorder.run(
        [_case(recorder, **failed)], run_id="ahead", started=ahead.isoformat(timespec="microseconds")
    )
    past = recorder.run([_case(recorder)])
    ledger = recorder.ledger
    assert [one.run_id for one in ledger.runs()] == [future, past]
    assert ledger.find_run("latest") == past
    assert [one["run"] for one in ledger.history("add")] == [future, past]
    case = _case(recorder).case_id
    assert ledger.find_case(case).status == "passed"
    [newest] = ledger.cases([future, past])
    assert newest.status == "passed"
    evidence = collect(ledger)
    assert evidence.operators["add"].everything().passed == 1
    assert any(f"run {future} is dated in the future" in one for one in evidence.warnings)


def _case(recorder: Any, **fields: Any) -> Any:
    from optest.core.result import Status

    status = Status(fields.pop("status", "passed"))
    return recorder.case("add", status=status, **fields)


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("2026-01-01T01:00:00+02:00", "2025-12-31T23:00:00.000000+00:00"),
        ("2026-01-01T00:00:00.5+00:00", "2026-01-01T00:00:00.5+00:00"),
        ("2026-13-01T00:00:00+00:00", None),
        ("0001-01-01T00:00:00+23:00", None),
    ],
)
def test_published_dates_can_be_compared(recorder: Any, sent: str, kept: str | None) -> None:
    recorder.run([_case(recorder)], started=sent)
    [run] = recorder.ledger.runs()
    body = encode(run, [], None)
    if kept is None:
        with pytest.raises(UsageError, match=r"run\.started"):
            decode(body)
    else:
        assert decode(body)[0].started == kept


def test_half_a_character_ends_no_run(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "odd_generator.py").write_text(
        "class G:\n    def generate(self, case, rng): raise ValueError('half \\udcff, \\ud800 and NUL \\0')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("sys.argv", ["optest", "run", os.fsdecode(b"\xff")])
    reports = [word for kind in ("json", "junit", "html") for word in ("--report", f"{kind}:r.{kind}")]
    result = call(*RELU, "--generator", "odd_generator:G", *reports, code=1)
    assert "half \\udcff, \\ud800 and NUL" in result.output
    assert "problem" not in result.output
    [case] = json.loads(Path("r.json").read_text())["cases"]
    assert case["reason"].endswith("half \\udcff, \\ud800 and NUL \\0")
    [run] = Ledger("home/ledger.sqlite").runs()
    assert run.command_line == "optest run '\\udcff'"


@pytest.mark.parametrize("what", ["folder", "pipe", "text"])
def test_what_is_no_ledger_is_told(call: Call, tmp_path: Path, what: str) -> None:
    place = tmp_path / "place"
    if what == "folder":
        place.mkdir()
    elif what == "pipe":
        os.mkfifo(place)
    else:
        place.write_text("text " * 1000)
    for words in (RELU, ("coverage",)):
        result = call(*words, "--ledger", str(place), code=3)
        assert f"the ledger {place} cannot be read" in result.output
