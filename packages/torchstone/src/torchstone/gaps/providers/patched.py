"""A package that changes PyTorch when it is imported: ``patched:PACKAGE``.

The package is imported in a process of its own. Another process, which never imports the package, calls the
unchanged PyTorch.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache

from ...errors import GapsError
from ..answers import Answer, Provider, Trial
from ..outcomes import Outcome
from ..processes import Ready, Report, Task, called, run_in_child
from ..surface import SCOPE, Api, first_line
from ..trials import trial_of


@dataclass
class PatchedProvider:
    """PyTorch as changed by the import of ``package``."""

    package: str
    place: str = field(default="", init=False)
    """The device that the package uses for CUDA, set by :meth:`answers`; empty if it offers no CUDA."""
    _trials: dict[str, Trial] = field(default_factory=dict, init=False, repr=False)

    scope = SCOPE

    @property
    def name(self) -> str:
        return f"patched:{self.package}"

    @property
    def watched(self) -> str | None:
        return "cuda" if self.place else None

    @property
    def compared(self) -> str:
        says = f"a call that says CUDA, which it sends to {self.place}" if self.place else "the same call"
        return (
            f"in a process that has imported {self.package}: {says}, beside the call that says CPU in a "
            "process that has not; for torch.cuda, whose own side needs a GPU, the documented type of the "
            "result"
        )

    def answers(self, apis: Iterable[Api]) -> Mapping[str, Answer]:
        """Return the answers; this makes all calls, too, because only the child process has the package."""
        chosen = tuple(apis)
        expected = _reference(chosen)
        attempts = called(chosen, expected)
        ready, found = run_in_child(Task(chosen, self.package, attempts))
        self.place = ready.place
        self._trials = {
            name: trial
            for name, report in found.items()
            if (trial := _trial(name, report, expected[name].outcome, ready)) is not None
        }
        return {name: one.answer for name, one in found.items() if one.answer is not None}

    def trials(self, apis: Iterable[Api]) -> Mapping[str, Trial]:
        return {api.name: self._trials[api.name] for api in apis if api.name in self._trials}


@cache
def _reference(apis: tuple[Api, ...]) -> Mapping[str, Report]:
    """Return the reports of the unchanged PyTorch, which are the same for every package."""
    return run_in_child(Task(apis))[1]


def _trial(name: str, found: Report, expected: Outcome | None, ready: Ready) -> Trial | None:
    if found.contract is not None or found.outcome is None:
        return found.contract
    if expected is None or expected.exception:
        expected = Outcome({})  # only a call that ended its process has no expected outcome
    return trial_of(name, expected, found.outcome, ready.place or "cpu", exact=ready.place in ("", "cpu"))


def make(rest: str) -> Provider:
    """Return the provider. Raises :class:`GapsError` if the package is missing or already imported here."""
    importlib.invalidate_caches()
    try:
        there = bool(rest) and importlib.util.find_spec(rest) is not None
    except (ImportError, ValueError) as error:
        raise GapsError(f"there is no package {rest}: {first_line(error)}", hint=_HINT) from error
    if not there:
        raise GapsError(f"there is no package {rest!r} here", hint=_HINT)
    if rest in sys.modules:
        raise GapsError(
            f"{rest} is imported in this process: what PyTorch itself is cannot be read here any more",
            hint="start from a process that has not imported it; if `import torch` does, "
            "set TORCH_DEVICE_BACKEND_AUTOLOAD=0",
        )
    return PatchedProvider(rest)


_HINT = "install it, correct its name, or put its folder on PYTHONPATH"
