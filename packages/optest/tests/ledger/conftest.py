"""Ledgers to test: SQLite files, and databases of a PostgreSQL server that the tests start."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from optest.ledger import Ledger

_numbers = itertools.count()


@pytest.fixture(scope="session")
def postgresql(require_tool: Callable[[str], str]) -> Iterator[str]:
    """URL of a server's databases, without a name: a socket in a folder of its own, no network."""
    initdb, control = require_tool("initdb"), require_tool("pg_ctl")
    # The server refuses to run as root, and sockets have short paths.
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
