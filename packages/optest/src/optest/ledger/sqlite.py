"""Sets up SQLite so that transactions are written completely or not at all, and writers wait for each other.

Python's ``sqlite3`` does not begin a transaction before it creates or changes a table, so a killed process
could leave half of them. The ledger therefore begins its transactions itself.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Engine, event

_WRITES = "optest_writes"


def set_up(engine: Engine) -> None:
    """Set up connections: wait for other writers, enforce references, and begin transactions explicitly."""
    event.listen(engine, "connect", _connected)
    event.listen(engine, "begin", _begun)


def writing(engine: Engine) -> Engine:
    """Return ``engine`` set up for transactions that write, on any database."""
    return engine.execution_options(**{_WRITES: True})


def _connected(connection: Any, record: Any) -> None:
    connection.isolation_level = None  # sqlite3 must not begin or commit by itself
    connection.execute("PRAGMA busy_timeout = 30000")
    connection.execute("PRAGMA foreign_keys = ON")


def _begun(connection: Connection) -> None:
    """Begin with the write lock: if two transactions read first and then write, one would fail, not wait."""
    if connection.get_execution_options().get(_WRITES):
        connection.exec_driver_sql("BEGIN IMMEDIATE")
