"""The ledger's tables, and how an older ledger becomes one of today.

A change of the tables is a new entry of ``MIGRATIONS``; entries that were released
never change. Not here: queries (``store``, ``difference``).
"""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    func,
    insert,
    inspect,
    select,
    text,
    update,
)

METADATA = MetaData()

SCHEMA = Table("optest_schema", METADATA, Column("version", Integer, primary_key=True))
ENVIRONMENTS = Table(
    "environments",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("facts", Text, nullable=False, unique=True),  # a JSON object, keys sorted
)
BACKENDS = Table(
    "backends",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("kind", String, nullable=False),
    Column("name", String, nullable=False),
    Column("chip", String, nullable=False),  # "" for none: NULLs would not be unique
    UniqueConstraint("kind", "name", "chip"),
)
RUNS = Table(
    "runs",
    METADATA,
    Column("run_id", String, primary_key=True),
    Column("started", String, nullable=False),
    Column("version", String, nullable=False),
    Column("command_line", Text, nullable=False),
    Column("seed", BigInteger, nullable=False),
    Column("environment", ForeignKey("environments.id"), nullable=False),
    Column("backend", ForeignKey("backends.id"), nullable=False),
    Column("summary", Text),  # JSON; NULL while the run goes on, and if it was killed
    Column("planned", BigInteger),  # cases; NULL where it is not known how many
    Column("config", Text),  # what else tells the backend from others of its name
)
CASES = Table(
    "cases",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("run_id", ForeignKey("runs.run_id"), nullable=False),
    Column("case_id", String, nullable=False),
    Column("op", String, nullable=False),
    Column("category", String, nullable=False),
    Column("dtypes", String, nullable=False),  # comma-separated
    Column("phase", String, nullable=False),
    Column("status", String, nullable=False),
    Column("reason", Text, nullable=False),
    Column("duration_s", Float, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("flaky", Boolean, nullable=False),
    Column("rest", Text, nullable=False),  # JSON: the other fields of the record
    Column("inputs", String),  # a hash of the inputs' values; NULL where it is not known, as is
    Column("settings", String),  # one of the driver's settings
    UniqueConstraint("run_id", "case_id"),
)
METRICS = Table(
    "metrics",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("case", ForeignKey("cases.id"), nullable=False, index=True),
    Column("output", String, nullable=False),
    Column("passed", Boolean, nullable=False),
    Column("count", BigInteger, nullable=False),
    Column("mismatches", BigInteger, nullable=False),
    Column("max_abs", Float),
    Column("max_rel", Float),
    Column("max_ulp", Float),  # distances in float64 go beyond 64-bit integers
    Column("error_ulp", Float),  # against a wider reference,
    Column("control_ulp", Float),  # and the control's own
)
_CASES_BY_OP = Index("cases_by_op", CASES.c.op)
_CASES_BY_ID = Index("cases_by_case_id", CASES.c.case_id)
_CASES_COUNTED = Index(
    "cases_counted",
    CASES.c.run_id, CASES.c.op, CASES.c.category, CASES.c.dtypes, CASES.c.phase, CASES.c.status,
)  # fmt: skip
_LATER = (_CASES_BY_OP, _CASES_BY_ID, _CASES_COUNTED)


def _create(connection: Connection) -> None:
    """Version 1: all tables, with the index that comes with METRICS."""
    for table in METADATA.sorted_tables:
        later = [one for one in table.indexes if one in _LATER]
        table.indexes.difference_update(later)
        table.create(connection, checkfirst=True)
        for index in table.indexes:  # a table that was there may lack it
            index.create(connection, checkfirst=True)
        table.indexes.update(later)


def _index_cases(connection: Connection) -> None:
    """Version 2: history and replay look cases up by operator and by id."""
    for index in (_CASES_BY_OP, _CASES_BY_ID):
        index.create(connection, checkfirst=True)


def _index_counts(connection: Connection) -> None:
    """Version 3: dashboards count cases without reading them."""
    _CASES_COUNTED.create(connection, checkfirst=True)


def _add_accuracy(connection: Connection) -> None:
    """Version 4: errors against a wider reference, beside the control's."""
    _add_columns(connection, METRICS, "error_ulp", "control_ulp")


def _widen_numbers(connection: Connection) -> None:
    """Version 5: seeds and counts of elements of 64 bits. SQLite's integers have them anyway."""
    if connection.dialect.name == "sqlite":
        return
    for table, name in ((RUNS, "seed"), (METRICS, "count"), (METRICS, "mismatches")):
        kind = table.c[name].type.compile(connection.dialect)
        connection.execute(text(f"ALTER TABLE {table.name} ALTER COLUMN {name} TYPE {kind}"))


def _add_planned(connection: Connection) -> None:
    """Version 6: how many cases a run has, so that one that was killed is seen to lack some."""
    _add_columns(connection, RUNS, "planned")


def _add_config(connection: Connection) -> None:
    """Version 7: what tells several targets of one driver and chip apart."""
    _add_columns(connection, RUNS, "config")


def _add_hashes(connection: Connection) -> None:
    """Version 8: what tells cases of one id apart whose inputs, or whose driver's settings, are others."""
    _add_columns(connection, CASES, "inputs", "settings")


def _add_columns(connection: Connection, table: Table, *names: str) -> None:
    known = {one["name"] for one in inspect(connection).get_columns(table.name)}
    for name in names:
        if name not in known:
            kind = table.c[name].type.compile(connection.dialect)
            connection.execute(text(f"ALTER TABLE {table.name} ADD COLUMN {name} {kind}"))


MIGRATIONS: tuple[Callable[[Connection], None], ...] = (
    _create,
    _index_cases,
    _index_counts,
    _add_accuracy,
    _widen_numbers,
    _add_planned,
    _add_config,
    _add_hashes,
)
"""What makes version n + 1 of version n; the last one makes today's."""


_LOCK = 0x6F707465
"""What processes that make or migrate one ledger at a time agree on."""


def version_of(connection: Connection) -> int:
    """The version that a ledger has; 0 for an empty database, or one that was left half made."""
    if not inspect(connection).has_table(SCHEMA.name):
        return 0
    return connection.scalar(select(SCHEMA.c.version)) or 0


def migrate(connection: Connection, *, to: int = len(MIGRATIONS)) -> None:
    """Bring the ledger to version ``to``, within the connection's transaction; one process at a time."""
    if connection.dialect.name == "postgresql":  # in SQLite a transaction that writes is alone
        connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))
    version = version_of(connection)
    for number, step in enumerate(MIGRATIONS[version:to], version + 1):
        step(connection)
        if number == 1:
            connection.execute(insert(SCHEMA).values(version=1))
        else:
            connection.execute(update(SCHEMA).values(version=number))
