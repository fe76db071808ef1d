"""Saves checkpoints: writes the state beside what is there, and then renames one small file, the manifest.

At every moment, a path holds either the old checkpoint or the new one, complete. ``docs/adr`` explains why
the manifest is the file to rename, and :mod:`.disk` has the single steps.
"""

from __future__ import annotations

import inspect
import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import torch

from optest.files import write_whole

from .._version import __version__
from ..errors import CheckpointError
from . import disk, manifest
from .manifest import Manifest
from .shards import StoredFile, StoredTensor, Writer, plan
from .states import SECTIONS, present, random_state
from .tree import Encoder

P = ParamSpec("P")
T = TypeVar("T")

SHARD_SIZE = 4 << 30
"""The most bytes of tensors in one file, unless a single tensor is larger."""


def save(
    path: str | os.PathLike[str],
    *,
    model: Any = None,
    optimizer: Any = None,
    scheduler: Any = None,
    scaler: Any = None,
    loader: Any = None,
    step: int | None = None,
    rng: bool = True,
    shard_size: int = SHARD_SIZE,
    **metadata: Any,
) -> Path:
    """Save to the folder ``path``, replacing a checkpoint there. The save is durable when this returns.

    ``model``, ``optimizer``, ``scheduler``, ``scaler`` and ``loader`` are objects with a ``state_dict``,
    state dicts, generators of random numbers, or dicts or lists of such objects. Other keywords are stored as
    they are: tensors, NumPy arrays, numbers, strings, None, and lists, tuples and dicts of these. With
    ``rng``, the global random generators of torch, NumPy and Python are stored too. A file of tensors has at
    most ``shard_size`` bytes of data, unless a single tensor is larger.

    Raises :class:`~torchstone.errors.CheckpointUnstorable` for a value that would need pickle,
    :class:`~torchstone.errors.CheckpointBusy` if another process is saving there, and
    :class:`~torchstone.errors.CheckpointError` if writing to the disk fails. The old checkpoint then stays.
    """
    objects = present(model, optimizer, scheduler, scaler, loader)
    state = collect_given(step=step, rng=rng, shard_size=shard_size, **objects, **metadata)
    return turns.run(lambda: write(Path(path), state))


def _takes(like: Callable[P, Any]) -> Callable[[Callable[..., T]], Callable[P, T]]:
    """Return a decorator that gives a function the parameters of ``like``, for type checkers and ``help``."""

    def decorate(function: Callable[..., T]) -> Callable[P, T]:
        result = inspect.signature(function).return_annotation
        function.__signature__ = inspect.signature(like).replace(return_annotation=result)  # type: ignore[attr-defined]
        return function

    return decorate


@_takes(save)
def save_async(path: str | os.PathLike[str], **arguments: Any) -> Future[Path]:
    """Save like :func:`save`, but write in the background, after copying the state.

    Later changes of the model do not affect the checkpoint. One save runs at a time: this waits for the one
    before, so that at most one copy is in memory. The result of the future is the path, and it raises what
    :func:`save` raises. When the process ends, it waits for a save that is still running.
    """
    turns.wait()
    state = collect_given(**arguments).copied()
    return turns.start(lambda: write(Path(path), state))


@dataclass
class State:
    """The content of a checkpoint to be written: sections as JSON, and the tensors that they name."""

    sections: dict[str, Any]
    tensors: list[torch.Tensor]
    places: list[tuple[str, ...]]
    step: int | None
    shard_size: int
    sequence: int = 0
    metric: float | None = None

    def copied(self) -> State:
        """Copy all tensors to new memory on the CPU; return this state."""
        self.tensors = [one.resolve_conj().resolve_neg().to("cpu", copy=True) for one in self.tensors]
        return self


def collect_given(
    *, step: int | None = None, rng: bool = True, shard_size: int = SHARD_SIZE, **given: Any
) -> State:
    """Collect the state of the arguments of :func:`save`: objects by the names of sections, and metadata."""
    objects = {name: one for name in SECTIONS if (one := given.pop(name, None)) is not None}
    return collect(objects, step=step, rng=rng, metadata=given, shard_size=shard_size)


def collect(
    objects: Mapping[str, Any],
    *,
    step: int | None,
    rng: bool,
    metadata: Mapping[str, Any],
    shard_size: int = SHARD_SIZE,
) -> State:
    """Collect the state of ``objects``, and with ``rng`` that of random generators; no tensor is copied."""
    if step is not None and (isinstance(step, bool) or not isinstance(step, int)):
        raise CheckpointError(f"step is {step!r}, not an integer", hint="pass the number of the step")
    if shard_size < 1:
        raise CheckpointError(
            f"shard_size is {shard_size}, not a positive number", hint="pass a number of bytes"
        )
    encoder = Encoder()
    values = {**objects, **({"rng": random_state()} if rng else {}), "metadata": dict(metadata)}
    sections = {name: encoder.encode(value, (name,)) for name, value in values.items()}
    return State(sections, encoder.tensors, encoder.places, step, shard_size)


def write(path: Path, state: State) -> Path:
    """Write ``state`` to ``path``; see :func:`save` for what this raises."""
    with disk.failures_of(f"save the checkpoint {path}"):
        _check_place(path)
        disk.make_folder(path)
        with disk.locked(path) as alone:
            data = path / manifest.new_folder_name()
            try:
                os.mkdir(data)
                write_whole(path / manifest.MANIFEST, manifest.dumps(_write_data(data, state)))
            except BaseException:
                if not manifest.may_name(path, data.name):  # it does if an interrupt came after the renaming
                    disk.remove(data)
                raise
            disk.sync_folder(path)
            if alone:
                for one in manifest.leftovers(path, keep=data.name):
                    disk.remove(one)
    return path


def _check_place(path: Path) -> None:
    """Raise CheckpointError if ``path`` holds anything but a checkpoint or what is left of one."""
    if not path.exists() or manifest.is_checkpoint(path):
        return
    if path.is_dir() and {one.name for one in path.iterdir()} == {
        one.name for one in manifest.leftovers(path, keep=None)
    }:
        return
    raise CheckpointError(
        f"cannot save the checkpoint {path}: something else is there",
        hint="choose a path that does not exist, is empty or holds a checkpoint",
    )


def _write_data(data: Path, state: State) -> Manifest:
    """Write every file of tensors, durably, and return the manifest that names them."""
    sizes = [
        (place[0], one.numel() * one.element_size())
        for place, one in zip(state.places, state.tensors, strict=True)
    ]
    files: list[StoredFile] = []
    tensors: dict[int, StoredTensor] = {}
    planned = plan(sizes, state.shard_size)
    counts: dict[str, int] = {}
    totals: dict[str, int] = {}
    for section, _ in planned:
        totals[section] = totals.get(section, 0) + 1
    keys = _keys(state.places)
    with Writer() as writer:
        for number, (section, members) in enumerate(planned):
            counts[section] = counts.get(section, 0) + 1
            name = f"{section}-{counts[section]:05}-of-{totals[section]:05}.safetensors"
            chosen = [(keys[i], state.tensors[i]) for i in members]
            file, found = writer.write(data / name, number, chosen)
            files.append(file)
            tensors |= {i: found[keys[i]] for i in members}
    disk.sync_folder(data)
    disk.sync_folder(data.parent)
    return Manifest(
        data=data.name,
        sections=state.sections,
        files=tuple(files),
        tensors=tuple(tensors[i] for i in range(len(tensors))),
        step=state.step,
        sequence=state.sequence,
        metric=state.metric,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        producer={"torchstone": __version__, "torch": str(torch.__version__)},
    )


def _keys(places: list[tuple[str, ...]]) -> list[str]:
    """Return a key in its file for each tensor: its place in the section, which is its name in a model."""
    keys = ["/".join(one.replace("~", "~0").replace("/", "~1") for one in place[1:]) for place in places]
    taken: set[tuple[str, str]] = set()
    for i, (key, place) in enumerate(zip(keys, places, strict=True)):
        encodable = key.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in key)
        if not encodable or key in ("", "__metadata__") or (place[0], key) in taken:
            keys[i] = f"~tensor-{i}"
        taken.add((place[0], keys[i]))
    return keys


class _Turns:
    """Lets only one save of this process run at a time, in the order in which they were requested.

    A signal handler that interrupts a save may save too, to another path.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="torchstone-save")
        self.last: Future[Any] | None = None

    def run(self, work: Callable[[], T]) -> T:
        """Run ``work`` once no other save is running, and return its result."""
        self.wait()
        with self.lock:
            return work()

    def start(self, work: Callable[[], T]) -> Future[T]:
        """Run ``work`` in the background."""

        def alone() -> T:
            with self.lock:
                return work()

        future = self.thread.submit(alone)
        self.last = future
        return future

    def wait(self) -> None:
        """Wait until no save runs in the background. An error stays with its future."""
        if self.last is not None:
            self.last.exception()


turns = _Turns()


def _in_child() -> None:
    global turns
    turns = _Turns()  # a child does not have the parent's thread, and the parent's lock may be held


os.register_at_fork(after_in_child=_in_child)
