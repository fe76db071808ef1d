"""The matrix of faults: what is done to a save or to a checkpoint, and what must be left of it.

A run is saved at step 5, then at step 8 with a fault. Whatever is left must load, be the old checkpoint or
the new one, and train on to step 10 with every bit of a run that was never interrupted.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import random
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from torchstone import checkpoint
from torchstone.checkpoint import loading, manifest, saving
from torchstone.errors import CheckpointBusy, CheckpointError, CheckpointWarning

from .boundaries import Disk, failing_at, killed_at, steps_seen
from .training import Run

OLD, NEW, END = 5, 8, 10


@dataclass
class Count:
    """How often a fault was tried, and how often each kind of checkpoint was found afterwards."""

    tried: int = 0
    old: int = 0
    new: int = 0
    none: int = 0
    refused: int = 0

    def saw(self, step: int | None) -> None:
        """Note one outcome: the step that was found, None if there was no checkpoint."""
        self.tried += 1
        self.old += step == OLD
        self.new += step == NEW
        self.none += step is None


@dataclass(frozen=True)
class Fault:
    """One cell of the matrix: ``try_all`` raises ``AssertionError`` if anything is lost."""

    name: str
    what: str
    expected: str
    try_all: Callable[[Path], Count]


FAULTS: dict[str, Fault] = {}


def fault(what: str, expected: str) -> Callable[[Callable[[Path], Count]], Callable[[Path], Count]]:
    """Make a function a cell of the matrix; its name is the cell's."""

    def register(function: Callable[[Path], Count]) -> Callable[[Path], Count]:
        name = function.__name__.replace("_", " ")
        FAULTS[name] = Fault(name, what, expected, function)
        return function

    return register


@cache
def whole() -> str:
    """The digest of the run that was never interrupted."""
    run = Run()
    run.train(END)
    return run.digest()


def trained(steps: int) -> Run:
    run = Run()
    run.train(steps)
    return run


def resumed(path: Path) -> int:
    """Return the step of the checkpoint at ``path``, after checking that training resumes from it exactly."""
    run = Run()
    run.load(path)
    step = run.step
    assert step in (OLD, NEW), f"neither the old nor the new checkpoint but step {step}"
    run.train(END)
    assert run.digest() == whole(), f"the run from step {step} differs from one that was not interrupted"
    return step


def nothing_is_left_over(path: Path) -> None:
    """Check that a later save works, and removes the leftovers of interrupted ones."""
    trained(NEW).save(path)
    assert checkpoint.load(path).step == NEW
    assert len(list(path.iterdir())) == 2, "a save that did not end has left something"


@contextlib.contextmanager
def room() -> Iterator[Path]:
    """A folder for one cell, in memory where there is a disk in memory: cells save hundreds of times."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


# The process ends ------------------------------------------------------------------------


@fault("SIGKILL at each step of a save over a checkpoint", "the old checkpoint or the new one")
def killed_while_replacing(folder: Path) -> Count:
    run, count = trained(NEW), Count()
    trained(OLD).save(folder / "kept")
    for number in itertools.count():
        path = folder / "x"
        shutil.copytree(folder / "kept", path)
        killed = killed_at(number, lambda path=path: run.save(path, shard_size=400))  # type: ignore[misc]
        count.saw(resumed(path))
        nothing_is_left_over(path)
        shutil.rmtree(path)
        if not killed:
            assert count.old
            assert count.new > 1
            return count
    raise AssertionError


@fault("SIGKILL at each step of a first save", "no checkpoint, said plainly, or the new one")
def killed_in_a_first_save(folder: Path) -> Count:
    run, count = trained(NEW), Count()
    for number in itertools.count():
        path = folder / str(number) / "x"
        killed = killed_at(number, lambda path=path: run.save(path))  # type: ignore[misc]
        if manifest.is_checkpoint(path):
            count.saw(resumed(path))
        else:
            try:
                checkpoint.load(path)
            except CheckpointError as error:
                assert "there is no checkpoint at" in str(error)  # noqa: PT017
            count.saw(None)
        nothing_is_left_over(path)
        if not killed:
            return count
    raise AssertionError


@fault("SIGKILL at each step of Manager.save, which also moves `latest` and removes", "the old or the new")
def killed_in_a_manager(folder: Path) -> Count:
    run, count = trained(NEW), Count()
    kept = checkpoint.Manager(folder / "kept", keep_last=1)
    kept.save(OLD, **trained(OLD).state)
    for number in itertools.count():
        path = folder / "x"
        shutil.copytree(folder / "kept", path)
        manager = checkpoint.Manager(path, keep_last=1)
        killed = killed_at(number, lambda manager=manager: manager.save(NEW, **run.state))  # type: ignore[misc]
        count.saw(resumed(path))
        manager.save(NEW + 1, **run.state)
        assert [one.step for one in manager.saved()] == [NEW + 1]
        assert len(list(path.iterdir())) == 2
        shutil.rmtree(path)
        if not killed:
            return count
    raise AssertionError


@fault("SIGKILL at each step of a save in the background", "the old checkpoint or the new one")
def killed_in_the_background(folder: Path) -> Count:
    run, count = trained(NEW), Count()
    trained(OLD).save(folder / "kept")

    def save(path: Path) -> None:
        future = checkpoint.save_async(path, **run.state, step=NEW)
        with torch.no_grad():
            for parameter in run.model.parameters():
                parameter.fill_(7)
        future.result()

    for number in itertools.count():
        path = folder / "x"
        shutil.copytree(folder / "kept", path)
        killed = killed_at(number, lambda path=path: save(path))  # type: ignore[misc]
        count.saw(resumed(path))
        shutil.rmtree(path)
        if not killed:
            return count
    raise AssertionError


# The power is cut ------------------------------------------------------------------------


@fault(
    "power cut at each step of a save over a checkpoint: only what has been through `fsync` is left, "
    "or all names and only such data, or everything",
    "the old checkpoint or the new one; the new one once `save` has returned",
)
def power_cut(folder: Path) -> Count:
    count, numbers = Count(), itertools.count()
    root = folder / "root"
    root.mkdir()
    trained(OLD).save(root / "x")
    run, disk = trained(NEW), Disk(root)

    def check() -> list[int]:
        images = disk.survivors(folder / str(next(numbers)))
        steps = [resumed(image / "x") for image in images]
        for step in steps:
            count.saw(step)
        return steps

    def before(name: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        with patch.multiple(os, **real):  # the check reads with the real functions, so it makes no steps
            check()
            disk.before(name, function, arguments)

    real = {name: getattr(os, name) for name in ("mkdir", "pwrite", "fsync", "replace", "unlink", "rmdir")}
    with steps_seen(before):
        run.save(root / "x")
    assert set(check()) == {NEW}, "what was saved was not durable when save returned"
    return count


# The disk refuses -------------------------------------------------------------------------


def _refusals(folder: Path, error: int) -> Count:
    run, count = trained(NEW), Count()
    path = folder / "x"
    trained(OLD).save(folder / "kept")
    for number in itertools.count():
        shutil.copytree(folder / "kept", path)
        refused = False
        with failing_at(number, error) as reached:
            try:
                run.save(path)
            except CheckpointError as raised:
                assert os.strerror(error) in str(raised)  # noqa: PT017
                refused = True
        count.refused += refused
        step = resumed(path)
        count.saw(step)
        assert refused or step == NEW, "a save that did not count raised nothing"
        if step == OLD:
            left = list(manifest.leftovers(path, keep=manifest.read(path).data))
            assert not left, f"a refused save left {left}"
        shutil.rmtree(path)
        if not reached:
            return count
    raise AssertionError


@fault("full disk: ENOSPC at each step", "one error; the old checkpoint, or the new one where that is there")
def full_disk(folder: Path) -> Count:
    return _refusals(folder, errno.ENOSPC)


@fault("read-only folder: EACCES at each step", "one error; the old checkpoint, or the new one")
def read_only_folder(folder: Path) -> Count:
    return _refusals(folder, errno.EACCES)


@fault("broken disk: EIO at each step", "one error; the old checkpoint, or the new one")
def broken_disk(folder: Path) -> Count:
    return _refusals(folder, errno.EIO)


# The files are damaged --------------------------------------------------------------------


def _damages(folder: Path, damaged: Callable[[bytes], Iterator[bytes | None]]) -> Count:
    """Damage each file of the newest checkpoint: loading it is refused, and the manager takes the old one."""
    count = Count()
    manager = checkpoint.Manager(folder)
    manager.save(OLD, **trained(OLD).state)
    newest = manager.save(NEW, **trained(NEW).state)
    for file in sorted(path for path in newest.rglob("*") if path.is_file()):
        content = file.read_bytes()
        for other in damaged(content):
            if other is None:
                file.unlink()
            else:
                file.write_bytes(other)
            try:
                checkpoint.load(newest)
            except CheckpointError:
                count.refused += 1
            run = Run()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", CheckpointWarning)
                loaded = manager.load(**run.state)
            assert loaded is not None
            run.step = loaded.step or 0
            count.saw(run.step)
            run.train(END)
            assert run.digest() == whole()
        file.write_bytes(content)
    assert count.refused == count.tried == count.old
    return count


@fault("torn files: each file of the newest cut off at several places, or gone", "refused; the old one loads")
def torn_files(folder: Path) -> Count:
    def damaged(content: bytes) -> Iterator[bytes | None]:
        size = len(content)
        yield from (content[:at] for at in (0, 8, size // 2, size - 1))
        yield content[: size // 2] + bytes(size - size // 2)  # blocks that never reached the disk
        yield None

    return _damages(folder, damaged)


@fault("flipped bits: 12 in each file of the newest, one at a time", "refused; the old one loads")
def flipped_bits(folder: Path) -> Count:
    def damaged(content: bytes) -> Iterator[bytes | None]:
        for at in random.Random(0).sample(range(len(content) * 8), 12):
            flipped = bytearray(content)
            flipped[at // 8] ^= 1 << at % 8
            yield bytes(flipped)

    return _damages(folder, damaged)


# Others are there -------------------------------------------------------------------------


def _save_often(path: str, steps: int, times: int) -> int:
    """Save several times from another process; return how many saves were not refused."""
    run, done = trained(steps), 0
    for _ in range(times):
        try:
            run.save(Path(path))
            done += 1
        except CheckpointBusy:
            pass
    return done


@fault(
    "two processes save to one path 15 times each while a third loads 30 times",
    "each save counts or is refused as busy; each load is one whole checkpoint",
)
def two_writers(folder: Path) -> Count:
    count, path = Count(), folder / "x"
    trained(OLD).save(path)
    children = []
    for steps in (OLD, NEW):
        child = os.fork()
        if child == 0:
            os._exit(100 + _save_often(str(path), steps, 15))
        children.append(child)
    for _ in range(30):
        resumed(path)
        count.tried += 1
    saved = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) - 100 for child in children]
    assert all(0 <= one <= 15 for one in saved), f"a writer failed: {saved}"
    assert sum(saved) > 0
    nothing_is_left_over(path)
    return count


@fault("two threads save to one path 10 times each", "every save counts, one after the other")
def two_threads(folder: Path) -> Count:
    count, path = Count(), folder / "x"
    states = [trained(steps) for steps in (OLD, NEW)]
    with ThreadPoolExecutor(2) as pool:
        for _ in pool.map(lambda i: states[i % 2].save(path), range(20)):
            count.tried += 1
    resumed(path)
    assert len(list(path.iterdir())) == 2
    return count


@fault(
    "the clock jumps between saves, years back or ahead, and times of files are wrong", "the newest by order"
)
def clock_changes(folder: Path) -> Count:
    count = Count()
    for case, years in enumerate([(2040, 1980), (1970, 2100), (2026, 2026)]):
        manager = checkpoint.Manager(folder / str(case), keep_last=2)
        for step, year in zip((OLD, NEW), years, strict=True):
            moment = saving.datetime(year, 1, 1, tzinfo=saving.UTC)
            with patch.object(
                saving, "datetime", type("Clock", (), {"now": staticmethod(lambda tz, m=moment: m)})
            ):
                path = manager.save(step, **trained(step).state)
            for file in [path, *path.rglob("*")]:
                os.utime(file, (moment.timestamp(), moment.timestamp()))
        count.saw(resumed(folder / str(case)))
        assert manager.latest() == path
    return count


@fault("a checkpoint is replaced while it is loaded", "the old checkpoint or the new one")
def replaced_while_loading(folder: Path) -> Count:
    count, path, run = Count(), folder / "x", trained(NEW)

    def replacing(real: Any, *, after: bool) -> Any:
        """Wrap ``real`` so that its first call replaces the checkpoint before or after it runs."""
        calls = itertools.count()

        def function(*arguments: Any, **options: Any) -> Any:
            first = next(calls) == 0
            if first and not after:
                run.save(path)
            found = real(*arguments, **options)
            if first and after:
                run.save(path)
            return found

        return function

    for module, name, after in (
        (loading, "Reader", False),
        (torch.UntypedStorage, "from_file", False),
        (loading, "Reader", True),
    ):
        trained(OLD).save(path)
        again = Run()
        with patch.object(module, name, replacing(getattr(module, name), after=after)):
            again.load(path)
        count.saw(again.step)
        again.train(END)
        assert again.digest() == whole()
    assert (count.old, count.new) == (1, 2)
    return count


def row(cell: Fault, count: Count) -> tuple[str, ...]:
    """The cell's line on the page."""
    seen = ((count.refused, "refused"), (count.none, "none yet"), (count.old, "old"), (count.new, "new"))
    parts = [f"{number} {word}" for number, word in seen if number]
    return cell.what, cell.expected, str(count.tried), ", ".join(parts) or "as expected"
