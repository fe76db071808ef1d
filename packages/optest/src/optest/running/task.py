"""Tasks: the unit of work of a worker process, one case or several that share samples and programs.

The runner only handles tasks. Retries, resuming and deaths of processes therefore work the same way
for optest's own operators (:class:`CaseTask`) and for PyTorch's databases (``torch.opinfo``).
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..backends.driver import BackendDriver
from ..core.case import TestCase
from ..core.result import CaseResult, Status
from ..plan.rerun import rerun_command
from .execution import Array, record, run_case


def _no_seconds() -> dict[str, float]:
    return defaultdict(float)


@dataclass
class TaskOutcome:
    """The records of a task; ``seconds`` has the times of its parts by name, ``left`` tasks still to run."""

    results: list[CaseResult] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=_no_seconds)
    left: Sequence[Task] = ()


class Task(ABC):
    """A piece of work on a driver that gives one record per case."""

    cases: int | None = None
    """How many cases the task has; None if that is not known before it runs."""

    @property
    @abstractmethod
    def key(self) -> str:
        """The key in the journal: it identifies the task and all that decides its results on this backend."""

    @abstractmethod
    def run(self, driver: BackendDriver) -> TaskOutcome:
        """Run the task; a failure of a case is part of its record."""

    @abstractmethod
    def record(self, status: Status, reason: str, **fields: Any) -> CaseResult:
        """Return a record for a task that ended without one; ``fields`` are fields of :class:`CaseResult`."""

    @abstractmethod
    def rerun(self, result: CaseResult) -> str:
        """Return the command that runs exactly the case of ``result`` again."""

    def smaller(self) -> Sequence[Task]:
        """Return the parts to run instead if the task killed its process; empty if it has only one case."""
        return ()

    def only(self, results: Sequence[CaseResult]) -> Task:
        """Return a task that runs only the cases of ``results``."""
        return self


@dataclass(frozen=True)
class CaseTask(Task):
    """One case of optest's own operators.

    ``plan`` is the file that the case comes from. If ``inputs`` are given, they replace generated
    ones and must have the case's shapes and dtypes.
    """

    case: TestCase
    plan: Path | None = None
    inputs: Sequence[Array] | None = None
    cases = 1

    @property
    def key(self) -> str:
        rest = repr((self.case.tolerance, self.case.backend, self.case.backend_config))
        return f"{self.case.id}-{hashlib.sha256(rest.encode()).hexdigest()[:8]}"

    def run(self, driver: BackendDriver) -> TaskOutcome:
        return TaskOutcome([run_case(driver, self.case, self.inputs)])

    def record(self, status: Status, reason: str, **fields: Any) -> CaseResult:
        return record(self.case, status, reason, **fields)

    def rerun(self, result: CaseResult) -> str:
        return rerun_command(self.case, self.plan)


def add_seconds(total: dict[str, float], more: Mapping[str, float]) -> None:
    """Add the seconds of each name in ``more`` to ``total``."""
    for name, taken in more.items():
        total[name] = total.get(name, 0.0) + taken
