"""Tasks: what a worker process runs at a time, one case or several that share samples and programs.

The runner knows tasks alone, so that retries, resuming and deaths of processes are the same for
optest's own operators (:class:`CaseTask`) and for PyTorch's databases (``torch.opinfo``).
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
    """The records of a task; ``seconds`` is what its parts took, by name; ``left`` is still to run."""

    results: list[CaseResult] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=_no_seconds)
    left: Sequence[Task] = ()


class Task(ABC):
    """Something to run on a driver that comes to one record per case."""

    cases: int | None = None
    """How many cases it has, where that is known before it runs."""

    @property
    @abstractmethod
    def key(self) -> str:
        """The task and all that decides its results on this backend: the journal finds it by that."""

    @abstractmethod
    def run(self, driver: BackendDriver) -> TaskOutcome:
        """Run it; whatever goes wrong with a case is in its record."""

    @abstractmethod
    def record(self, status: Status, reason: str, **fields: Any) -> CaseResult:
        """The record of a task that ended without one; ``fields`` are fields of :class:`CaseResult`."""

    @abstractmethod
    def rerun(self, result: CaseResult) -> str:
        """The command that runs exactly the case of ``result`` again."""

    def smaller(self) -> Sequence[Task]:
        """Parts to run instead where the task took its process down; none if it has one case."""
        return ()

    def only(self, results: Sequence[CaseResult]) -> Task:
        """The task of these of its cases."""
        return self


@dataclass(frozen=True)
class CaseTask(Task):
    """One case of optest's own operators.

    ``plan`` is the file that it comes from. ``inputs`` instead of generated ones must have the
    case's shapes and dtypes.
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
    """Add seconds by name to a total."""
    for name, taken in more.items():
        total[name] = total.get(name, 0.0) + taken
