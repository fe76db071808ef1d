"""The ledger's tables, and the migration of older ledgers.

To change the tables, add an entry to ``MIGRATIONS``; released entries never
change. Not here: queries (``store``, ``difference``).
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
    Column("summary", Text),  # JSON; NULL while the run goes on, or if it was killed
    Column("planned", BigInteger),  # the number of cases; NULL if unknown
    Column("config", Text),  # what distinguishes backends of one name
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
    Column("inputs", String),  # a hash of the inputs' values; NULL if unknown
    Column("settings", String),  # a hash of the driver's settings; NULL if unknown
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
    Column("max_ulp", Float),  # float64 distances can exceed 64-bit integers
    Column("error_ulp", Float),  # the error against a wider reference
    Column("control_ulp", Float),  # the control's error
)
_CASES_BY_OP = Index("cases_by_op", CASES.c.op)
_CASES_BY_ID = Index("cases_by_case_id", CASES.c.case_id)
_CASES_COUNTED = Index(
    "cases_counted",
    CASES.c.run_id, CASES.c.op, CASES.c.category, CASES.c.dtypes, CASES.c.phase, CASES.c.status,
)  # fmt: skip
_LATER = (_CASES_BY_OP, _CASES_BY_ID, _CASES_COUNTED)


def _create(connection: Connection) -> None:
    """Version 1: create all tables, and the index of METRICS."""
    for table in METADATA.sorted_tables:
        later = [one for one in table.indexes if one in _LATER]
        table.indexes.difference_update(later)
        table.create(connection, checkfirst=True)
        for index in table.indexes:  # an existing table may lack it
            index.create(connection, checkfirst=True)
        table.indexes.update(later)


def _index_cases(connection: Connection) -> None:
    """Version 2: add indexes, because history and replay look up cases by operator and by id."""
    for index in (_CASES_BY_OP, _CASES_BY_ID):
        index.create(connection, checkfirst=True)


def _index_counts(connection: Connection) -> None:
    """Version 3: add an index, so that dashboards count cases without reading them."""
    _CASES_COUNTED.create(connection, checkfirst=True)


def _add_accuracy(connection: Connection) -> None:
    """Version 4: add errors against a wider reference, and the control's errors."""
    _add_columns(connection, METRICS, "error_ulp", "control_ulp")


def _widen_numbers(connection: Connection) -> None:
    """Version 5: widen seeds and counts of elements to 64 bits, which SQLite's integers always have."""
    if connection.dialect.name == "sqlite":
        return
    for table, name in ((RUNS, "seed"), (METRICS, "count"), (METRICS, "mismatches")):
        kind = table.c[name].type.compile(connection.dialect)
        connection.execute(text(f"ALTER TABLE {table.name} ALTER COLUMN {name} TYPE {kind}"))


def _add_planned(connection: Connection) -> None:
    """Version 6: add the number of cases of a run, which shows that a killed run lacks some."""
    _add_columns(connection, RUNS, "planned")


def _add_config(connection: Connection) -> None:
    """Version 7: add the configuration that distinguishes targets of one driver and chip."""
    _add_columns(connection, RUNS, "config")


def _add_hashes(connection: Connection) -> None:
    """Version 8: add hashes that distinguish cases of one id with other inputs or driver settings."""
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
"""The functions that turn version n into version n + 1; the last one makes the current version."""


_LOCK = 0x6F707465
"""The number of the database lock for creating or migrating a ledger, which one process does at a time."""


def version_of(connection: Connection) -> int:
    """Return the version of a ledger; 0 for an empty database or one that was only partly created."""
    if not inspect(connection).has_table(SCHEMA.name):
        return 0
    return connection.scalar(select(SCHEMA.c.version)) or 0


def migrate(connection: Connection, *, to: int = len(MIGRATIONS)) -> None:
    """Bring the ledger to version ``to``, within the connection's transaction; one process at a time."""
    if connection.dialect.name == "postgresql":  # SQLite has one writer at a time
        connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))
    version = version_of(connection)
    for number, step in enumerate(MIGRATIONS[version:to], version + 1):
        step(connection)
        if number == 1:
            connection.execute(insert(SCHEMA).values(version=1))
        else:
            connection.execute(update(SCHEMA).values(version=number))
