"""``Ledger`` stores results in a database: SQLite by default, or any SQLAlchemy URL.

Not here: the tables (``tables``), what changed between two runs (``difference``).
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, create_engine, func, select, update
from sqlalchemy.engine import RowMapping, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

from ..core.result import FAILURES, CaseResult, RunInfo, Status
from ..core.summary import Summary, unfinished
from ..errors import LedgerError, UsageError
from ..names import listing
from ..text import redacted
from .difference import Difference, apart, compare_runs, differing
from .exchange import check_same, outgoing, unknown
from .inserting import copy_cases, insert_cases, insert_run, set_summary
from .order import newest_first, oldest_first
from .reading import CaseRow, Group, Runs, read_cases, read_groups, read_totals
from .rows import case_result, case_row, metric_rows
from .sqlite import set_up, writing
from .tables import BACKENDS, CASES, ENVIRONMENTS, METRICS, MIGRATIONS, RUNS, migrate, version_of

_BATCH = 1000
"""How many rows are copied at a time."""


class Ledger:
    """The ledger at ``place``: a file, or a database URL such as ``postgresql://host/name``.

    A missing ledger is created, unless ``create`` is False, and an older one is migrated.
    Every method raises :class:`LedgerError` if the ledger cannot be used.
    """

    def __init__(self, place: str | Path, *, create: bool = True) -> None:
        self.place = redacted(str(place))
        """The place for messages, without the password of a URL."""
        self._password = ""
        self._engine = self._connect(str(place), create)
        with self._told("read"), self._engine.connect() as connection:
            version = version_of(connection)
        if version > len(MIGRATIONS):
            raise LedgerError(
                f"the ledger {self.place} has version {version}; this optest knows versions up to "
                f"{len(MIGRATIONS)}",
                "install the optest that wrote it, or name another ledger: --ledger PATH",
            )
        if version < len(MIGRATIONS):
            with self._told("migrated" if version else "made"), writing(self._engine).begin() as connection:
                migrate(connection)

    def _connect(self, place: str, create: bool) -> Engine:
        try:
            parsed = make_url(place if "://" in place else f"sqlite:///{place}")
            self._password = str(parsed.password or "")
            if parsed.drivername == "postgresql":  # SQLAlchemy's default is psycopg2
                parsed = parsed.set(drivername="postgresql+psycopg")
            if parsed.get_backend_name() == "sqlite" and parsed.database:
                file = Path(parsed.database.removeprefix("file:"))
                if not create and not file.exists():
                    raise LedgerError(
                        f"there is no ledger {file}", "`optest run` makes one; --ledger names one"
                    )
                file.parent.mkdir(parents=True, exist_ok=True)
            engine = create_engine(parsed)
        except (ArgumentError, NoSuchModuleError, ImportError, ValueError) as error:
            raise LedgerError(
                f"the ledger {self.place!r} cannot be used: {self._without_password(error)}",
                "give a file, or a URL such as postgresql://user@host/name with its driver installed "
                "(pip install 'optest[postgresql]')",
            ) from error
        except OSError as error:
            raise LedgerError(f"the ledger {self.place} cannot be made: {error.strerror}") from error
        if engine.dialect.name == "sqlite":
            set_up(engine)
        return engine

    @contextlib.contextmanager
    def _told(self, doing: str) -> Iterator[None]:
        """Turn database errors into a :class:`LedgerError` with one sentence."""
        try:
            yield
        except (SQLAlchemyError, UnicodeError, OverflowError) as error:
            cause = getattr(error, "orig", None) or error
            raise LedgerError(
                f"the ledger {self.place} cannot be {doing}: {self._without_password(cause)}",
                "name another one (--ledger PATH), or none (--ledger none)",
            ) from error

    def _without_password(self, error: BaseException) -> str:
        text = redacted(str(error))
        return text.replace(self._password, "***") if self._password else text

    def close(self) -> None:
        """Close the connections to the database."""
        self._engine.dispose()

    # Writing a run.

    def start(self, run: RunInfo) -> None:
        """Add a run without cases."""
        with self._told("written"), writing(self._engine).begin() as connection:
            insert_run(connection, run, None)

    def append(self, run_id: str, results: Sequence[CaseResult]) -> None:
        """Add results to a run: all of them, or none if any fails."""
        with self._told("written"), writing(self._engine).begin() as connection:
            rows = [case_row(run_id, one) for one in results]
            metrics = (metric_rows(0, one) for one in results)
            insert_cases(connection, rows, list(metrics))

    def finish(self, run_id: str, summary: Summary) -> None:
        """Mark a run as over."""
        text = json.dumps(summary.to_dict())
        with self._told("written"), writing(self._engine).begin() as connection:
            connection.execute(update(RUNS).where(RUNS.c.run_id == run_id).values(summary=text))

    # Reading.

    def runs(self) -> list[RunInfo]:
        """Return all runs, oldest first; runs dated in the future cannot be ordered, and come first."""
        with self._told("read"), self._engine.connect() as connection:
            return [
                _run_info(row) for row in connection.execute(_ALL_RUNS.order_by(*oldest_first())).mappings()
            ]

    def results(self, run_id: str) -> Iterator[CaseResult]:
        """Yield the cases of a run as recorded, without comparisons."""
        with self._told("read"), self._engine.connect() as connection:
            found = connection.execute(_ALL_RUNS.where(RUNS.c.run_id == run_id)).mappings().one()
            rows = select(CASES).where(CASES.c.run_id == run_id).order_by(CASES.c.id)
            backend = _run_info(found).backend
            for row in connection.execute(rows).mappings():
                yield case_result(row, backend)

    def cases(self, runs: Runs, **which: Any) -> Iterator[CaseRow]:
        """Yield cases as light rows; ``runs`` and ``which`` are as in :func:`reading.read_cases`."""
        with self._told("read"), self._engine.connect() as connection:
            yield from read_cases(connection, runs, **which)

    def groups(self, runs: Runs) -> list[Group]:
        """Count the cases of a run, or the newest of several, by operator, dtypes, phase and status."""
        with self._told("read"), self._engine.connect() as connection:
            return read_groups(connection, runs)

    def totals(self) -> dict[str, Counter[Status]]:
        """Return, for each run, how many of its cases ended with each status."""
        with self._told("read"), self._engine.connect() as connection:
            return read_totals(connection)

    def mark(self) -> tuple[int, int, int]:
        """Return the number of runs, how many are over, and the last case's number.

        At least one of them changes whenever a run or case is added, or a run ends.
        """
        query = select(func.count(), func.count(RUNS.c.summary)).select_from(RUNS)
        with self._told("read"), self._engine.connect() as connection:
            runs, over = connection.execute(query).one()
            return runs, over, connection.scalar(select(func.max(CASES.c.id))) or 0

    # Sending and receiving runs in parts.

    def outgoing(self, run: RunInfo, size: int = _BATCH) -> Iterator[list[CaseResult]]:
        """Yield the cases of a run in parts, with comparisons as far as the ledger keeps them."""
        with self._told("read"), self._engine.connect() as connection:
            yield from outgoing(connection, run, size)

    def add(self, run: RunInfo, results: Sequence[CaseResult], summary: str | None = None) -> int:
        """Add a run and its cases as far as they are missing; return how many cases were added.

        ``summary`` is JSON if the run is over. Raises :class:`UsageError` if another run has the id.
        """
        with self._told("written"), writing(self._engine).begin() as connection:
            found = connection.execute(_ALL_RUNS.where(RUNS.c.run_id == run.run_id)).mappings().first()
            if found is None:
                insert_run(connection, run, summary)
            else:
                check_same(_run_info(found), run)
            set_summary(connection, run.run_id, summary)
            fresh = unknown(connection, run.run_id, results)
            insert_cases(
                connection,
                [case_row(run.run_id, one) for one in fresh],
                [metric_rows(0, one) for one in fresh],
            )
            return len(fresh)

    def summary(self, run_id: str) -> str | None:
        """Return the summary of a run as JSON; None if the run is not over."""
        with self._told("read"), self._engine.connect() as connection:
            return connection.scalar(select(RUNS.c.summary).where(RUNS.c.run_id == run_id))

    def outcomes(self) -> dict[str, dict[str, Any]]:
        """Return the summary of each run that is over, by id (``Summary.to_dict``)."""
        query = select(RUNS.c.run_id, RUNS.c.summary).where(RUNS.c.summary.is_not(None))
        with self._told("read"), self._engine.connect() as connection:
            return {row.run_id: json.loads(row.summary) for row in connection.execute(query)}

    def unfinished(self) -> dict[str, str]:
        """Return the incomplete runs by id, with a text that says why, and how many cases have a result."""
        outcomes, totals = self.outcomes(), self.totals()
        told = {
            run.run_id: unfinished(
                outcomes.get(run.run_id), run.planned, totals.get(run.run_id, Counter()).total()
            )
            for run in self.runs()
        }
        return {run_id: text for run_id, text in told.items() if text}

    def find_case(self, prefix: str) -> CaseResult | None:
        """Return the newest record of the case whose id begins with ``prefix``; None if there is none.

        Raises :class:`UsageError` if the ids of several cases begin with it.
        """
        matching = CASES.c.case_id.startswith(prefix, autoescape=True)
        with self._told("read"), self._engine.connect() as connection:
            ids = connection.scalars(select(CASES.c.case_id).where(matching).distinct().limit(4)).all()
            if len(ids) > 1:
                raise UsageError(f"several cases have ids that begin with {prefix}: {listing(ids)}")
            query = select(CASES, BACKENDS.c.kind, BACKENDS.c.name, BACKENDS.c.chip, RUNS.c.config)
            query = query.join(RUNS, RUNS.c.run_id == CASES.c.run_id).join(BACKENDS)
            query = query.where(matching).order_by(*newest_first(), CASES.c.id.desc()).limit(1)
            row = connection.execute(query).mappings().first()
        return None if row is None else case_result(row, _backend(row))

    def find_run(self, prefix: str) -> str:
        """Return the run id that begins with ``prefix``, or the newest for ``latest``; raises UsageError."""
        ids = [one.run_id for one in self.runs()]
        if prefix == "latest" and ids:
            return ids[-1]
        matching = [one for one in ids if one.startswith(prefix)]
        if len(matching) != 1:
            told = f"the newest are {listing(reversed(ids[-5:]))}" if ids else "it has none at all"
            raise UsageError(f"{len(matching)} runs of the ledger {self.place} begin with {prefix!r}; {told}")
        return matching[0]

    def diff(self, run_a: str, run_b: str) -> Difference:
        """Return what changed from one run to another; name runs by id, its beginning, or ``latest``."""
        first, second = self.find_run(run_a), self.find_run(run_b)
        with self._told("read"), self._engine.connect() as connection:
            found = compare_runs(connection, first, second)
        incomplete = self.unfinished()
        runs = {one.run_id: one for one in self.runs()}
        found.warnings = (
            *apart(runs[first], runs[second]),
            *differing([runs[first], runs[second]]),
            *(
                f"the run {one} is not whole: {incomplete[one]}"
                for one in (first, second)
                if one in incomplete
            ),
        )
        return found

    def history(
        self, op: str, *, backend: str | None = None, dtype: str | None = None
    ) -> list[dict[str, Any]]:
        """Return the results of ``op`` in each run, oldest first; ``dtype`` may be the dtype of any input.

        ``backend`` is a driver's name or a target (:attr:`RunInfo.target`).
        """
        runs = {one.run_id: one for one in self.runs()}
        query = (
            select(
                RUNS.c.run_id,
                RUNS.c.started,
                CASES.c.status,
                func.count(CASES.c.id.distinct()).label("cases"),
                func.max(METRICS.c.max_ulp).label("max_ulp"),
            )
            .join(CASES, CASES.c.run_id == RUNS.c.run_id)
            .outerjoin(METRICS, METRICS.c.case == CASES.c.id)
            .where(CASES.c.op == op)
            .group_by(RUNS.c.run_id, RUNS.c.started, CASES.c.status)
            .order_by(*oldest_first())
        )
        if backend is not None:
            chosen = [one.run_id for one in runs.values() if backend in (one.target, one.backend["name"])]
            query = query.where(RUNS.c.run_id.in_(chosen))
        if dtype is not None:
            query = query.where(("," + CASES.c.dtypes + ",").contains(f",{dtype},", autoescape=True))
        found: dict[str, dict[str, Any]] = {}
        incomplete = self.unfinished()
        with self._told("read"), self._engine.connect() as connection:
            for row in connection.execute(query).mappings():
                entry = found.setdefault(
                    row["run_id"],
                    {
                        "run": row["run_id"], "started": row["started"],
                        "backend": runs[row["run_id"]].target,
                        "passed": 0, "failed": 0, "other": 0, "max_ulp": None,
                        "unfinished": incomplete.get(row["run_id"], ""),
                    },
                )  # fmt: skip
                status = Status(row["status"])
                kind = "failed" if status in FAILURES else "passed" if status is Status.PASSED else "other"
                entry[kind] += row["cases"]
                worst = [one for one in (entry["max_ulp"], row["max_ulp"]) if one is not None]
                entry["max_ulp"] = max(worst, default=None)
        return list(found.values())

    # Merging ledgers.

    def merge(self, other: Ledger) -> int:
        """Add the runs of ``other`` that are missing or incomplete here; return how many there were.

        Each run is added completely or not at all. Raises :class:`UsageError`, before anything is added, if
        different runs in the two ledgers have the same id.
        """
        here = {one.run_id: one for one in self.runs()}
        coming = other.runs()
        for run in coming:
            if run.run_id in here:
                check_same(here[run.run_id], run)
        known, there = self._extents(), other._extents()
        missing = [run for run in coming if there[run.run_id] != known.get(run.run_id)]
        return sum(self._copy(other, run, new=run.run_id not in here) for run in missing)

    def _copy(self, other: Ledger, run: RunInfo, *, new: bool) -> bool:
        """Add what is missing of a run of ``other``; return whether there was anything."""
        with other._told("read"), other._engine.connect() as source:
            summary = source.scalar(select(RUNS.c.summary).where(RUNS.c.run_id == run.run_id))
            with self._told("written"), writing(self._engine).begin() as target:
                if new:
                    insert_run(target, run, summary)
                ended = not new and set_summary(target, run.run_id, summary)
                return copy_cases(source, target, run.run_id) > 0 or new or ended

    def _extents(self) -> dict[str, tuple[int, bool]]:
        """Return, for each run, how many cases it has and whether it is over."""
        query = select(RUNS.c.run_id, func.count(CASES.c.id), RUNS.c.summary.is_not(None))
        query = query.outerjoin(CASES, CASES.c.run_id == RUNS.c.run_id).group_by(RUNS.c.run_id)
        with self._told("read"), self._engine.connect() as connection:
            return {run_id: (cases, bool(over)) for run_id, cases, over in connection.execute(query)}


_ALL_RUNS = (
    select(RUNS, ENVIRONMENTS.c.facts, BACKENDS.c.kind, BACKENDS.c.name, BACKENDS.c.chip)
    .join(ENVIRONMENTS, ENVIRONMENTS.c.id == RUNS.c.environment)
    .join(BACKENDS, BACKENDS.c.id == RUNS.c.backend)
)


def _run_info(row: RowMapping) -> RunInfo:
    return RunInfo.from_dict({**row, "environment": json.loads(row["facts"]), "backend": _backend(row)})


def _backend(row: RowMapping) -> dict[str, str | None]:
    backend = {key: row[key] or None for key in ("kind", "name", "chip")}
    return backend | ({"config": row["config"]} if row["config"] else {})
