"""A folder of checkpoints, which knows the newest one, and keeps the best and the last ones.

Each checkpoint is a folder ``step-…``. The file ``latest`` names the newest one, and is updated once that is
durable. Checkpoints are in the order of saving, which a number in each manifest records. No clock is used.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import warnings
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from optest.files import write_whole

from ..errors import CheckpointBusy, CheckpointDamaged, CheckpointError, CheckpointWarning
from . import disk, manifest
from .loading import LATEST, Checkpoint, load
from .saving import SHARD_SIZE, State, collect_given, turns, write

_STEP = re.compile(r"step-(\d+)")


@dataclass(frozen=True)
class Saved:
    """One complete checkpoint of a manager. ``metric`` is what it is ranked by, or None if not finite."""

    path: Path
    step: int
    sequence: int
    metric: float | None


class Manager:
    """Saves to ``folder``, one checkpoint a step, and removes checkpoints that need not be kept.

    It keeps the ``keep_last`` newest checkpoints, and the ``keep_best`` best ones by the keyword of
    :meth:`save` that ``metric`` names (the smallest values, or with ``mode="max"`` the largest). The latest
    is always kept. Only one process at a time may save to a folder. At the end of a ``with`` block, a manager
    waits for a save in the background.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        keep_last: int | None = 3,
        keep_best: int = 0,
        metric: str = "loss",
        mode: Literal["min", "max"] = "min",
    ) -> None:
        if keep_last is not None and keep_last < 1:
            raise CheckpointError(f"keep_last is {keep_last}", hint="keep at least 1, or None for all")
        if keep_best < 0 or mode not in ("min", "max"):
            raise CheckpointError(
                f"keep_best is {keep_best} and mode {mode!r}",
                hint="keep_best counts from 0; mode is min or max",
            )
        self.folder = Path(folder)
        self.keep_last, self.keep_best, self.metric, self.mode = keep_last, keep_best, metric, mode
        self._running: Future[Path] | None = None

    def save(
        self,
        step: int,
        *,
        background: bool = False,
        rng: bool = True,
        shard_size: int = SHARD_SIZE,
        **state: Any,
    ) -> Path:
        """Save ``state`` as :func:`~torchstone.checkpoint.save` does, update ``latest``, and return the path.

        With ``background``, this returns as soon as the state has been copied, and a later call raises the
        error if the save fails. A checkpoint of the same step is replaced.
        """
        self.wait()
        metric = state.get(self.metric)
        if self.keep_best and not isinstance(metric, int | float):
            raise CheckpointError(
                f"{self.metric} is {metric!r}, and the best checkpoints are kept by it",
                hint=f"pass {self.metric}= as a number",
            )
        if step < 0:
            raise CheckpointError(f"step is {step}", hint="count steps from 0")
        collected = collect_given(step=step, rng=rng, shard_size=shard_size, **state)
        collected.metric = _judged(metric)
        path = self.folder / f"step-{step:08}"
        if background:
            copied = collected.copied()
            self._running = turns.start(lambda: self._write(path, copied))
            return path
        return turns.run(lambda: self._write(path, collected))

    def _write(self, path: Path, state: State) -> Path:
        with disk.failures_of(f"save the checkpoint {path}"):
            disk.make_folder(self.folder)
            with disk.locked(self.folder) as alone:
                before = self.saved()
                state.sequence = 1 + max((one.sequence for one in before), default=0)
                write(path, state)
                write_whole(self.folder / LATEST, f"{path.name}\n".encode())
                disk.sync_folder(self.folder)
                if alone:
                    self._clean(path)
        return path

    def _clean(self, latest: Path) -> None:
        """Remove checkpoints that need not be kept, and what interrupted saves have left."""
        saved = self.saved()
        last = saved if self.keep_last is None else saved[-self.keep_last :]
        kept = {one.path for one in [*last, *self._by_metric(saved)[: self.keep_best]]} | {latest}
        complete = {one.path for one in saved}
        for path in self._folders():
            if path in kept or (path not in complete and manifest.is_checkpoint(path)):
                continue  # a checkpoint that cannot be read is left for the user
            # A folder that another process is writing to is left alone.
            with contextlib.suppress(CheckpointBusy), disk.locked(path):
                # Remove the manifest first, so that a half-removed folder does not count as a checkpoint.
                disk.remove(path / manifest.MANIFEST)
                disk.remove(path)
        for one in manifest.leftovers(self.folder, keep=None):
            disk.remove(one)

    def _by_metric(self, saved: list[Saved]) -> list[Saved]:
        """Sort by metric: best first, newer first if equal. Those without a finite metric are left out."""
        sign = 1.0 if self.mode == "min" else -1.0
        judged = [one for one in saved if one.metric is not None]
        return sorted(judged, key=lambda one: (sign * (one.metric or 0.0), -one.sequence))

    def _folders(self) -> Iterator[Path]:
        if self.folder.is_dir():
            for path in sorted(self.folder.iterdir()):
                if _STEP.fullmatch(path.name) and path.is_dir():
                    yield path

    def saved(self) -> list[Saved]:
        """Return the complete checkpoints in the order of saving, without those with damaged manifests."""
        found = []
        for path in self._folders():
            try:
                read = manifest.read(path)
            except (OSError, CheckpointError):
                continue
            found.append(Saved(path, read.step or 0, read.sequence, read.metric))
        return sorted(found, key=lambda one: (one.sequence, one.step))

    def latest(self) -> Path | None:
        """Return the newest complete checkpoint, or None if there is none."""
        saved = [one.path for one in self.saved()]
        try:
            named = self.folder / (self.folder / LATEST).read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError):
            named = None
        return named if named in saved else saved[-1] if saved else None

    def best(self) -> Path | None:
        """Return the complete checkpoint with the best metric, or None if none has a metric."""
        return next((one.path for one in self._by_metric(self.saved())), None)

    def load(self, **targets: Any) -> Checkpoint | None:
        """Load the newest intact checkpoint with :func:`~torchstone.checkpoint.load`; None if there is none.

        Damaged ones are skipped with a :class:`~torchstone.errors.CheckpointWarning`. If all are damaged, the
        error about the last one tried is raised.
        """
        self.wait()
        latest = self.latest()
        if latest is None:
            return None
        older = [one.path for one in reversed(self.saved()) if one.path != latest]
        for path in [latest, *older]:
            try:
                return load(path, **targets)
            except CheckpointDamaged as error:
                damage = error
                warnings.warn(f"{error.message}; taking an older one", CheckpointWarning, stacklevel=2)
        raise damage

    def wait(self) -> None:
        """Wait for the save in the background, and raise its error if it failed."""
        running, self._running = self._running, None
        if running is not None:
            running.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.wait()
        else:
            turns.wait()


def _judged(metric: Any) -> float | None:
    """Return a metric as a number that can be compared, or None for anything else."""
    usable = isinstance(metric, int | float) and not isinstance(metric, bool) and math.isfinite(metric)
    return float(metric) if usable else None
