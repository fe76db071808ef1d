"""Processes that are killed while they write a ledger, and several that write one at once."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import create_engine, inspect, text
from sqlalchemy.schema import CreateTable

from optest.core.result import RunInfo
from optest.ledger import Ledger
from optest.ledger.tables import METADATA, MIGRATIONS, version_of

KILLED = '''
import itertools, os, shutil, signal, sys
from pathlib import Path
from sqlalchemy import Engine, create_engine, event
from optest.core.result import RunInfo
from optest.ledger import Ledger

kept, file = Path(sys.argv[1]), Path(sys.argv[2])
RUN = RunInfo("r", "2026-01-01T00:00:00+00:00", "0", "optest", {"kind": "k", "name": "n", "chip": None})

def write(killed_before):
    """Make or migrate the ledger and add a run; killed before that statement."""
    numbers = itertools.count()
    def stop(*_):
        if next(numbers) == killed_before:
            os.kill(os.getpid(), signal.SIGKILL)
    for name in ("before_cursor_execute", "commit"):
        event.listen(Engine, name, stop)
    Ledger(file).start(RUN)

for step in itertools.count():
    for old in file.parent.glob(file.name + "*"):
        old.unlink()
    if kept.exists():
        shutil.copy(kept, file)
    child = os.fork()
    if not child:
        write(step)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    known = [one.run_id for one in Ledger(file).runs()]
    assert set(known) <= {"old", "r"} and ("old" in known) == kept.exists(), (step, known)
    if status == 0:
        assert "r" in known
        print(step)
        break
    assert os.WTERMSIG(status) == signal.SIGKILL, (step, status)
    if "r" not in known:
        Ledger(file).start(RUN)
'''
OLD = RunInfo("old", "2025-01-01T00:00:00+00:00", "0", "optest", {"kind": "k", "name": "n", "chip": None})


@pytest.mark.parametrize("version", [0, 1])
def test_killed_at_any_statement_the_next_run_goes_on(tmp_path: Path, version: int) -> None:
    """The kill comes while tables are made (version 0), an older ledger is migrated, or rows are written."""
    kept = tmp_path / "kept.sqlite"
    if version:
        Ledger(kept).start(OLD)
        with create_engine(f"sqlite:///{kept}").begin() as connection:
            for name in ("cases_by_op", "cases_by_case_id", "cases_counted"):
                connection.execute(text(f"drop index {name}"))
            connection.execute(text(f"update optest_schema set version = {version}"))
    command = [sys.executable, "-c", KILLED, str(kept), str(tmp_path / "ledger.sqlite")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 15


def test_a_ledger_that_was_left_half_made_is_finished(tmp_path: Path) -> None:
    """Earlier versions could leave such a ledger, because they made each table by itself."""
    for made in range(1, len(METADATA.sorted_tables) + 1):
        file = tmp_path / f"{made}.sqlite"
        engine = create_engine(f"sqlite:///{file}")
        with engine.begin() as connection:
            for table in METADATA.sorted_tables[:made]:
                connection.execute(CreateTable(table))
        Ledger(file).start(OLD)
        with engine.connect() as connection:
            assert version_of(connection) == len(MIGRATIONS)
            indexes = {one["name"] for one in inspect(connection).get_indexes("metrics")}
        assert indexes == {"ix_metrics_case"}


def test_several_make_and_write_one_ledger_at_once(tmp_path: Path) -> None:
    def write(number: int) -> None:
        Ledger(tmp_path / "ledger.sqlite").start(RunInfo(**{**OLD.to_dict(), "run_id": f"r{number}"}))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(write, range(24)))
    assert len(Ledger(tmp_path / "ledger.sqlite").runs()) == 24
