"""Loads checkpoints: opens, checks and compares what is at a path before it changes anything."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch

from ..errors import CheckpointDamaged, CheckpointError, CheckpointMismatch, described
from ..torch_internals import dynamo
from . import foreign, manifest
from .disk import failures_of
from .manifest import Manifest, damage_of
from .matching import Report, is_module, match_module, match_optimizer
from .restoring import give_all
from .shards import Reader
from .states import has_state, present
from .tree import decode, tensors_in

LATEST = "latest"
"""The file in the folder of a :class:`~.manager.Manager` that names the newest checkpoint."""
_ATTEMPTS = 10
"""The number of tries to open a checkpoint while other processes replace it."""


class Checkpoint(Mapping[str, Any]):
    """An open checkpoint: a mapping from ``"model"``, ``"optimizer"``, … to their state.

    A part is read when it is first used. ``step`` and ``metadata`` are those that were given to the save.
    ``report`` lists what did not fit in a load with ``strict=False``. The files stay open until
    :meth:`close` or the end of a ``with`` block, so they can be read even after another checkpoint has
    taken their place.
    """

    def __init__(
        self,
        path: Path,
        source: Manifest | foreign.Foreign,
        reader: Reader | None,
        *,
        mapped: bool,
        verify: bool,
    ) -> None:
        self.path, self.source, self.report = path, source, Report()
        self._reader, self._mapped, self._verify = reader, mapped, verify
        self._values: dict[str, Any] = {}
        self._checked: set[str] = set()

    @property
    def step(self) -> int | None:
        """The number of the step at the save."""
        return self.source.step

    @property
    def metadata(self) -> dict[str, Any]:
        """The other keywords of the save."""
        found: dict[str, Any] = self["metadata"] if "metadata" in self.source.sections else {}
        return found

    def __getitem__(self, name: str) -> Any:
        if name not in self._values:
            self._values[name] = self.take(name, mapped=self._mapped)
        return self._values[name]

    def take(self, name: str, *, mapped: bool) -> Any:
        """Return the value of a section after checking it. Unlike ``[]``, this does not keep the value."""
        if isinstance(self.source, foreign.Foreign):
            return self.source.sections[name]
        node = self.source.sections[name]
        self.check([name])
        with damage_of(self.path):
            return decode(node, lambda number: self._files.tensor(number, mapped=mapped))

    def __iter__(self) -> Iterator[str]:
        return iter(self.source.sections)

    def __len__(self) -> int:
        return len(self.source.sections)

    def __repr__(self) -> str:
        return f"<checkpoint {self.path}, step {self.step}: {', '.join(self)}>"

    @property
    def _files(self) -> Reader:
        if self._reader is None:
            raise CheckpointError(f"the checkpoint {self.path} has been closed", hint="load it again")
        return self._reader

    def check(self, names: Iterable[str] | None = None) -> None:
        """Compare these sections, or all, with their checksums, unless it was opened with ``verify=False``.

        Raises :class:`~torchstone.errors.CheckpointDamaged`, which names the first damaged tensor.
        """
        left = set(self if names is None else names) - self._checked
        if self._verify and isinstance(self.source, Manifest):
            numbers = [i for name in left for i in tensors_in(self.source.sections[name])]
            with damage_of(self.path), failures_of(f"read the checkpoint {self.path}"):
                self._files.check(numbers)
        self._checked |= left

    def close(self) -> None:
        """Close the files; tensors that were read from them stay readable."""
        self._values.clear()
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_checkpoint(path: Path, *, mapped: bool = True, verify: bool = True) -> Checkpoint:
    """Open the checkpoint at ``path``, and check its manifest and the headers of its files."""
    path = _resolve(path)
    with failures_of(f"read the checkpoint {path}"):
        if foreign.is_foreign(path):
            return Checkpoint(path, foreign.read(path), None, mapped=mapped, verify=verify)
        for attempt in range(_ATTEMPTS):
            try:
                made = manifest.read(path)
                with damage_of(path):
                    reader = Reader(path / made.data, made.files, made.tensors)
            except (FileNotFoundError, NotADirectoryError) as error:
                if not manifest.is_checkpoint(path):
                    raise _nothing_at(path) from error
                if attempt + 1 < _ATTEMPTS and manifest.read(path).data != made.data:
                    continue  # another process has put a new one in its place
                raise CheckpointDamaged(
                    f"the checkpoint {path} is damaged: {Path(error.filename).name} is missing",
                    hint=manifest.DAMAGED,
                ) from error
            return Checkpoint(path, made, reader, mapped=mapped, verify=verify)
    raise AssertionError("unreachable")


def _resolve(path: Path) -> Path:
    """Return the newest checkpoint if ``path`` is the folder of a manager, otherwise ``path``."""
    try:
        name = (path / LATEST).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return path
    return path / name if Path(name).name == name and name else path


def _nothing_at(path: Path) -> CheckpointError:
    if path.is_dir():
        begun = any(True for _ in manifest.leftovers(path, keep=None))
        why = "a first save was interrupted" if begun else f"the folder has no {manifest.MANIFEST}"
        return CheckpointError(f"there is no checkpoint at {path}: {why}", hint="load another checkpoint")
    if path.exists():
        return CheckpointDamaged(
            f"{path} is not a checkpoint",
            hint="pass a folder that torchstone.checkpoint.save wrote, a file of torch.save or safetensors, "
            "or a folder of torch.distributed.checkpoint",
        )
    return CheckpointError(f"there is no checkpoint at {path}", hint="check the path")


def load(
    path: str | os.PathLike[str],
    *,
    model: Any = None,
    optimizer: Any = None,
    scheduler: Any = None,
    scaler: Any = None,
    loader: Any = None,
    rng: bool | None = None,
    strict: bool = True,
    select: str | Sequence[str] | None = None,
    cast: bool = False,
    mmap: bool = False,
    verify: bool = True,
) -> Checkpoint:
    """Load the checkpoint at ``path`` into the given objects; the result gives access to everything else.

    ``path`` is a folder that :func:`~torchstone.checkpoint.save` wrote, the folder of a
    :class:`~torchstone.checkpoint.Manager` (its latest checkpoint is loaded), a file of ``torch.save`` or
    safetensors, or a folder of ``torch.distributed.checkpoint``. No object is changed until everything that
    is needed has been checked and compared. If an object then refuses its state, the others keep theirs.

    - ``rng`` restores the global random generators. None does so if an optimizer is given.
    - ``strict=False`` loads the entries of the model that fit, and lists the others in ``report``.
    - ``select`` is a pattern, or several, of names in the model (``"encoder.*"``). Other names are ignored.
    - ``cast`` lets the model keep its own dtypes if those of the checkpoint differ.
    - ``mmap`` returns tensors that stay in the files until they are used. Writing to them changes no file.
    - ``verify=False`` skips the comparison of tensors with their checksums.

    Raises :class:`~torchstone.errors.CheckpointMismatch` with every difference,
    :class:`~torchstone.errors.CheckpointDamaged`, :class:`~torchstone.errors.CheckpointVersionError`, and
    :class:`~torchstone.errors.CheckpointError` if there is no checkpoint.
    """
    targets = present(model, optimizer, scheduler, scaler, loader)
    patterns = [select] if isinstance(select, str) else select
    opened = open_checkpoint(Path(path), mapped=mmap, verify=verify)
    try:
        if not targets:
            opened.check()
        restored = "rng" in opened if rng is None and optimizer is not None else bool(rng)
        _check_sections(opened, [*targets, *(["rng"] if restored else [])])
        random = opened.take("rng", mapped=False) if restored else None
        fitting = {
            name: _fit(
                target,
                # A module copies the tensors that it is given; other objects may keep them.
                opened.take(name, mapped=is_module(target)),
                _node(opened, name),
                name,
                _Wanted(opened.report, patterns, cast),
            )
            for name, target in targets.items()
        }
        _refuse_differences(opened, strict=strict)
        give_all(targets, fitting, random)
    except BaseException:
        opened.close()
        raise
    return opened


def _check_sections(opened: Checkpoint, wanted: Sequence[str]) -> None:
    missing = [name for name in wanted if name not in opened]
    if missing:
        raise CheckpointMismatch(
            f"the checkpoint {opened.path} has no {', '.join(missing)}; it has {', '.join(opened)}",
            hint="load the parts that it has",
        )


def _node(opened: Checkpoint, name: str) -> Any:
    """Return a section as it is stored, or None for a checkpoint of another kind."""
    return opened.source.sections[name] if isinstance(opened.source, Manifest) else None


@dataclass(frozen=True)
class _Wanted:
    """How to compare the state of an object, and the report that collects the differences."""

    report: Report
    select: Sequence[str] | None
    cast: bool


def _fit(target: Any, state: Any, node: Any, name: str, wanted: _Wanted) -> Any:
    """Return the part of ``state`` that fits ``target``, which is an object, or a dict or list of objects."""
    if is_module(target):
        prefix = name.removeprefix("model").removeprefix(".")
        return match_module(
            dynamo.uncompiled(target),
            _mapping(state, name),
            wanted.report,
            prefix=f"{prefix}." if prefix else "",
            select=wanted.select,
            cast=wanted.cast,
        )
    if isinstance(target, torch.optim.Optimizer):
        match_optimizer(target, state, (node or {}).get("shapes"), name, wanted.report)
        return state
    if has_state(target):
        return state
    if isinstance(target, Mapping):
        parts, nodes = _mapping(state, name), (node or {}).get("dict", {})
        _check_parts(sorted(map(str, target)), sorted(map(str, parts)), name)
        return {
            key: _fit(one, parts[key], nodes.get(key), f"{name}.{key}", wanted) for key, one in target.items()
        }
    if isinstance(target, list | tuple):
        found = list(state) if isinstance(state, list | tuple) else []
        _check_parts([str(i) for i in range(len(target))], [str(i) for i in range(len(found))], name)
        nodes = node if isinstance(node, list) else (node or {}).get("tuple", [None] * len(found))
        return [
            _fit(one, part, inner, f"{name}.{i}", wanted)
            for i, (one, part, inner) in enumerate(zip(target, found, nodes, strict=True))
        ]
    raise CheckpointError(
        f"cannot load into {name}: {described(target)} has no load_state_dict",
        hint="wrap a DataLoader in torchstone.checkpoint.ResumableLoader; "
        "read a tensor from the result of load",
    )


def _mapping(state: Any, name: str) -> Mapping[Any, Any]:
    if isinstance(state, Mapping):
        return state
    raise CheckpointMismatch(
        f"the checkpoint has {described(state)} as {name}", hint="load it as it was saved"
    )


def _check_parts(own: list[str], saved: list[str], name: str) -> None:
    if own != saved:
        raise CheckpointMismatch(
            f"the parts of {name} are {', '.join(saved) or 'none'} in the checkpoint, "
            f"{', '.join(own) or 'none'} here",
            hint="pass the same dict or list of objects as to the save",
        )


def _refuse_differences(opened: Checkpoint, *, strict: bool) -> None:
    report = opened.report
    if report.optimizer or (strict and not report.fits):
        raise CheckpointMismatch(
            f"the checkpoint {opened.path} does not fit what it is loaded into:\n{report}",
            hint="make the objects as they were at the save; strict=False loads what fits of a model, "
            "select= names a part of it, cast=True converts dtypes",
        )
