"""What happens to each CUDA-only line of a script, from a static scan and a run.

The scan (:mod:`.sources`) finds the places. The patch tables say what should happen to the names used there,
and the run's events (:mod:`.recorder`) say what did happen and how often. Nothing here is redirected or
printed.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from ..torch_internals.redirection import CUDA_FUNCTIONS
from .callers import is_installed
from .choice import resolve
from .launch import Program
from .launch import run as run_program
from .options import Options
from .patching import find_owner, patches
from .recorder import Event, Recorder
from .rows import Patch
from .sources import CUDA_PACKAGES, CallSite, SiteKind, scan_file

_NAMESPACES = ("torch.cuda", "torch.backends.cuda", "torch.backends.cudnn")
_NAMES = frozenset(
    {
        *("torch.version.cuda", "torch.distributed.is_nccl_available"),
        *("torch.utils.cpp_extension.CUDAExtension", "torch.utils.cpp_extension.CUDA_HOME"),
        *("torch.jit.script", "torch.jit.trace"),
        *("torch.autograd.graph.saved_tensors_hooks", "torch.autograd.graph.save_on_cpu"),
    }
)
_METHODS = frozenset({"cuda", "pin_memory", "is_pinned", "record_stream"})
_LEFT_ALONE = frozenset({"raises", "deliberate", "absent"})
"""Treatments in the patch tables that leave a name CUDA-only."""


class State(StrEnum):
    """What happened to a place."""

    REDIRECTED = "redirected"
    """The run reached this place, and the call was redirected."""
    CUDA_ONLY = "cuda-only"
    """The name stays CUDA-only: it is not replaced, or it raises."""
    DIFFERS = "differs"
    """It is redirected, but behaves differently than on CUDA; the note says how."""
    COVERED = "covered"
    """It would be redirected, but the run did not call it, or there was no run."""


@dataclass(frozen=True)
class Place:
    """One place in the source; ``outcomes`` counts the outcomes that the run recorded there."""

    site: CallSite
    state: State
    outcomes: Mapping[str, int]
    note: str

    def to_dict(self) -> dict[str, Any]:
        return {
            "path": self.site.path,
            "line": self.site.line,
            "column": self.site.column,
            "name": self.site.name,
            "kind": self.site.kind.value,
            "state": self.state.value,
            "outcomes": dict(self.outcomes),
            "note": self.note,
        }


@dataclass(frozen=True)
class Explanation:
    """The report: every CUDA-only place in the script and its own modules, in source order.

    ``exit_code`` is that of the script, or None if it was not run. ``elsewhere`` counts the calls that were
    redirected in other code, by ``file:line``, name and outcome.
    """

    script: str
    target: str
    exit_code: int | None
    places: tuple[Place, ...]
    elsewhere: Mapping[str, int] = field(default_factory=dict)

    def count(self, state: State) -> int:
        return sum(place.state is state for place in self.places)

    def to_dict(self) -> dict[str, Any]:
        return {
            "script": self.script,
            "target": self.target,
            "exit_code": self.exit_code,
            "places": [place.to_dict() for place in self.places],
            "elsewhere": dict(self.elsewhere),
            "counts": {state.value: self.count(state) for state in State},
        }

    def __str__(self) -> str:
        how = "not run" if self.exit_code is None else f"run, exit code {self.exit_code}"
        lines = [f"{self.script} on {self.target} ({how})"]
        for path in dict.fromkeys(place.site.path for place in self.places):
            lines.append(f"\n{path}")
            lines += [_line(place) for place in self.places if place.site.path == path]
        if self.elsewhere:
            lines.append("\nin other code")
            lines += [f"  {text} ({count}×)" for text, count in self.elsewhere.items()]
        counts = ", ".join(f"{self.count(state)} {state.value}" for state in State)
        return "\n".join([*lines, f"\n{len(self.places)} CUDA-only place(s): {counts}"])


def _line(place: Place) -> str:
    outcomes = "; ".join(f"{text} ({count}×)" for text, count in place.outcomes.items())
    site = place.site
    name = f"{site.name!r}" if site.kind in (SiteKind.STRING, SiteKind.DEVICE_TYPE) else site.name
    return f"  {site.line}:{site.column}  {name}: {place.state}: {outcomes or place.note}"


def explain(
    program: Program, arguments: Sequence[str] = (), options: Options | None = None, *, run: bool = True
) -> Explanation:
    """Scan ``program`` and, unless ``run`` is False, run it redirected in this process.

    After a run, the modules that it imported from the program's own folder are scanned, too. The source of a
    program given as a module (``-m``) is scanned only then, and only if something in it was redirected. What
    the program prints goes to stderr. Raises :class:`~torchstone.errors.ScriptError` if there is no such
    program or it is not Python, and what :class:`~.context.redirected` raises.
    """
    options = options or Options()
    program.check()
    target = resolve("cuda", options.target, options.devices)
    files, folder = _files_of(program), program.directory
    sites = _cuda_sites(files)  # before the script can change the directory
    exit_code, recorder = None, Recorder()
    if run:
        before = set(sys.modules)
        with contextlib.redirect_stdout(sys.stderr):
            exit_code = run_program(program, arguments, options, recorder)
        imported = {getattr(sys.modules[name], "__file__", None) for name in set(sys.modules) - before}
        told = {event.file for event in recorder.counts}
        others = [file for file in _own(folder, imported | told) if file not in files]
        sites += _cuda_sites(others)
        files += others
    known = {patch.name: patch for patch in patches()}
    tells_cuda = target is None or target.is_cpu
    places = tuple(_explained(site, recorder.counts, known, tells_cuda) for site in sites)
    shown = "cuda: nothing is redirected" if target is None else str(target)
    return Explanation(program.name, shown, exit_code, places, _elsewhere(recorder.counts, files))


def _files_of(program: Program) -> list[str]:
    if program.is_module:
        return []
    path = Path(program.name).absolute()
    return [str(path / "__main__.py" if path.is_dir() else path)]


def _cuda_sites(files: Iterable[str]) -> list[CallSite]:
    return [site for file in files for site in scan_file(file) if _is_cuda(site)]


def _own(folder: str, files: set[str | None]) -> list[str]:
    """Return the existing source files in the program's own folder, without installed packages."""
    own = (file for file in files if file and file.startswith(folder + os.sep) and file.endswith(".py"))
    return sorted(file for file in own if not is_installed(file) and os.path.exists(file))


def _is_cuda(site: CallSite) -> bool:
    match site.kind:
        case SiteKind.STRING | SiteKind.DEVICE_TYPE | SiteKind.ATTRIBUTE:
            return True
        case SiteKind.METHOD:
            return site.name in _METHODS
        case SiteKind.IMPORT:
            of_torch = site.name.startswith(_NAMESPACES) and site.name.endswith(".*")
            return of_torch or site.name.startswith(CUDA_PACKAGES)
    if site.name.startswith(CUDA_FUNCTIONS):
        return True
    return site.name.startswith(tuple(f"{name}." for name in _NAMESPACES)) or site.name in _NAMES


def _explained(
    site: CallSite, counts: Mapping[Event, int], known: Mapping[str, Patch], tells_cuda: bool
) -> Place:
    seen = Counter[str]()
    for event, count in counts.items():
        at_site = event.file == site.path and event.line in (site.line, site.call_line)
        if at_site and _is_about(event.name, site):
            seen[event.outcome] = max(count, seen[event.outcome])  # a class records __new__ and __init__
    note, state = _from_tables(site, known, tells_cuda)
    if state is None:
        state = State.REDIRECTED if seen else State.COVERED
    return Place(site, state, seen, note)


def _is_about(name: str, site: CallSite) -> bool:
    """Whether the name of an event matches the function, method or text of a site."""
    match site.kind:
        case SiteKind.METHOD | SiteKind.ATTRIBUTE:
            return name.endswith(f".{site.name}")
        case SiteKind.DEVICE_TYPE:
            return name == "torch.Tensor.device"
        case SiteKind.STRING:
            text = ".*".join(map(re.escape, site.name.split("{}")))
            return re.search(f"'{text}'", name) is not None
    return name == site.name or name.startswith(f"{site.name}.")


def _from_tables(site: CallSite, known: Mapping[str, Patch], tells_cuda: bool) -> tuple[str, State | None]:
    """Return the note and the state that the patch tables give a site; the run decides a state of None.

    ``tells_cuda``: whether ``x.device`` of a redirected tensor is a CUDA device.
    """
    match site.kind:
        case SiteKind.METHOD | SiteKind.ATTRIBUTE:
            patch = known.get(f"torch.Tensor.{site.name}") or known.get(f"torch.nn.Module.{site.name}")
            note = patch.note if patch else "on tensors and modules"
            return note, State.DIFFERS if patch is not None and patch.differs else None
        case SiteKind.STRING:
            return "where PyTorch takes a device or a backend", None
        case SiteKind.DEVICE_TYPE if tells_cuda:
            return "the type of a device that a tensor was put on", None
        case SiteKind.DEVICE_TYPE:
            return "the target's devices say their own type", State.DIFFERS
        case SiteKind.IMPORT if site.name.startswith(CUDA_PACKAGES):
            return "a package that only an NVIDIA GPU runs", State.CUDA_ONLY
        case SiteKind.IMPORT:
            return "the names of a star import are not followed", None
    patch = _patch_of(site.name, known)
    if patch is None:
        return "is not replaced", State.CUDA_ONLY
    if patch.treatment in _LEFT_ALONE:
        return patch.note, State.CUDA_ONLY
    return patch.note, State.DIFFERS if patch.differs else None


def _patch_of(name: str, known: Mapping[str, Patch]) -> Patch | None:
    """Return the patch of a dotted name, else of the same object elsewhere, a name below it, or its owner.

    For a private name, or one that this PyTorch lacks, only its own patch counts.
    """
    if name in known:
        return known[name]
    *owners, last = name.split(".")
    found = _object(name)
    if last.startswith("_") or found is None:
        return None
    by_object = (patch for patch in known.values() if callable(found) and patch.original is found)
    below = (patch for other, patch in known.items() if other.startswith(f"{name}."))
    above = (
        known[owner] for depth in range(len(owners), 2, -1) if (owner := ".".join(owners[:depth])) in known
    )
    return next((patch for patches in (by_object, below, above) for patch in patches), None)


def _object(name: str) -> Any:
    """Return the object under a dotted name, outside every redirection; None if there is none."""
    try:
        owner, attribute = find_owner(name)
        return getattr(owner, attribute, None)
    except (AttributeError, ImportError, AssertionError, RuntimeError):
        return None


def _elsewhere(counts: Mapping[Event, int], files: Iterable[str]) -> dict[str, int]:
    own = set(files)
    return {
        f"{event.file}:{event.line}  {event.name}: {event.outcome}": count
        for event, count in counts.items()
        if event.file not in own
    }
