"""Shared fixtures: ledgers on SQLite and on a PostgreSQL server, recorded runs, a dashboard's server."""

from __future__ import annotations

import hashlib
import itertools
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from optest.core.origin import Declared, Origin
from optest.core.result import CaseResult, RunInfo, Status
from optest.core.summary import Summary
from optest.ledger import Ledger

_numbers = itertools.count()


@pytest.fixture(scope="session")
def postgresql(require_tool: Callable[[str], str]) -> Iterator[str]:
    """Start a server on a socket, and yield the URL of its databases, with ``{name}`` for the name."""
    initdb, control = require_tool("initdb"), require_tool("pg_ctl")
    # The server refuses to run as root, and the path of a socket must be short.
    user = "postgres" if os.geteuid() == 0 else None
    folder = Path(tempfile.mkdtemp(prefix="optest-", dir="/tmp"))
    data = folder / "data"
    if user is not None:
        shutil.chown(folder, user)

    def run(*command: str) -> None:
        done = subprocess.run(
            command,
            user=user,
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout

    try:
        run(initdb, "--pgdata", str(data), "--username", "optest", "--auth", "trust", "--no-sync")
        options = f"-c listen_addresses= -c unix_socket_directories={folder} -c fsync=off"
        run(control, "start", "--pgdata", str(data), "--wait", "--log", str(folder / "log"), "-o", options)
        try:
            yield f"postgresql://optest@/{{name}}?host={folder}"
        finally:
            run(control, "stop", "--pgdata", str(data), "--mode", "immediate")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(params=["sqlite", "postgresql"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    if request.param == "sqlite":
        yield Ledger(tmp_path / "new" / "ledger.sqlite")
        return
    server = request.getfixturevalue("postgresql")
    name = f"ledger{next(_numbers)}"
    administrative = server.format(name="postgres").replace("postgresql:", "postgresql+psycopg:")
    admin = create_engine(administrative, isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    admin.dispose()
    yield Ledger(server.format(name=name))


ENDED = Summary()
BACKEND = {"kind": "stablehlo", "name": "torchstone", "chip": None}


class Recorder:
    """Writes runs of a suite into a ledger; a case's id comes from its operator, dtype, phase and sample."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._number = 0

    def run(self, cases: Iterable[CaseResult], ended: Summary | None = ENDED, **fields: Any) -> str:
        """Record a run that ended with the summary ``ended``, or was killed if None; return its id."""
        self._number += 1
        given: dict[str, Any] = {
            "run_id": f"20260101-0000{self._number:02}-abcdef",
            "started": f"2026-01-01T00:00:{self._number:02}+00:00",
            "version": "0.1.0",
            "command_line": "optest run",
            "backend": BACKEND,
            "environment": {"python": "3.11", "torch": "2.13"},
        }
        info = RunInfo(**{**given, **fields})
        self.ledger.start(info)
        self.ledger.append(info.run_id, list(cases))
        if ended is not None:
            self.ledger.finish(info.run_id, ended)
        return info.run_id

    @staticmethod
    def case(
        op: str, dtype: str = "float32", phase: str = "forward", sample: int = 0, **fields: Any
    ) -> CaseResult:
        key = f"{op}|{dtype}|{phase}|{sample}"
        origin = Origin(**{"suite": "opinfo", "sample": sample, **fields.pop("origin", {})})
        given: dict[str, Any] = {
            "case_id": hashlib.sha256(key.encode()).hexdigest()[:16],
            "op": op, "category": "elementwise", "dtypes": (dtype,), "shapes": {"input": (2, 3)},
            "attributes": {}, "origin": origin, "phase": phase, "seed": 0, "backend": BACKEND,
            "status": Status.PASSED, "duration_s": 0.001,
        }  # fmt: skip
        return CaseResult(**{**given, **fields})

    def operator(
        self,
        op: str,
        dtypes: str = "float32 float64",
        *,
        gradients: str | None = None,
        phases: str = "",
        **fields: Any,
    ) -> list[CaseResult]:
        """Return all cases of an operator with nothing missing; ``phases`` are added to the usual phases."""
        gradients = dtypes if gradients is None else gradients
        applies = f"forward {'backward ' if gradients else ''}noncontiguous errors {phases}"
        declared = Declared(
            dtypes=tuple(dtypes.split()), gradients=tuple(gradients.split()), phases=tuple(applies.split())
        )
        found = []
        for dtype in dtypes.split():
            wanted = [one for one in applies.split() if one != "backward" or dtype in gradients.split()]
            found += [
                self.case(op, dtype, one, origin={"declared": declared} if one == "forward" else {}, **fields)
                for one in wanted
            ]
        return found


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    return Recorder(Ledger(tmp_path / "recorded.sqlite"))


@pytest.fixture
def serve() -> Iterator[Callable[..., str]]:
    """``serve(ledger, **options)`` starts a server and returns its address."""
    uvicorn = pytest.importorskip("uvicorn", reason="the dashboard's extra is not installed")
    from optest.dashboard.server import make_app

    running: list[tuple[Any, threading.Thread]] = []

    def start(ledger: Any, tokens: tuple[str, ...] = ("sesame",), **options: Any) -> str:
        config = uvicorn.Config(make_app(ledger, tokens, **options), port=0, log_level="info")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        running.append((server, thread))
        return f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"

    yield start
    for server, thread in running:
        server.should_exit = True
        thread.join(10)
