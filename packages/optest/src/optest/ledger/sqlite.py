"""SQLite as the ledger uses it: what is written comes whole or not at all, and writers wait for each other.

Python's ``sqlite3`` begins no transaction before it makes or changes a table, so that a process that is
killed meanwhile would leave half of them. The ledger begins its transactions itself.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Engine, event

_WRITES = "optest_writes"


def set_up(engine: Engine) -> None:
    """Wait for other writers, keep references whole, and begin transactions that write."""
    event.listen(engine, "connect", _connected)
    event.listen(engine, "begin", _begun)


def writing(engine: Engine) -> Engine:
    """``engine`` for transactions that write, on any database."""
    return engine.execution_options(**{_WRITES: True})


def _connected(connection: Any, record: Any) -> None:
    connection.isolation_level = None  # sqlite3 begins and commits nothing by itself
    connection.execute("PRAGMA busy_timeout = 30000")
    connection.execute("PRAGMA foreign_keys = ON")


def _begun(connection: Connection) -> None:
    """Lock at once: of two that read first and then write, one would fail instead of waiting."""
    if connection.get_execution_options().get(_WRITES):
        connection.exec_driver_sql("BEGIN IMMEDIATE")
