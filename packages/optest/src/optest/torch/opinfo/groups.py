"""What a suite consists of: groups of cases, planned from the databases.

Not here: the samples of a group (``phases``), since only generating them tells how many there are.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from ...errors import UnknownName, UsageError

SUITES = {
    "opinfo": "torch.testing's op_db: every operator of PyTorch",
    "python_ref": "torch.testing's python_ref_db: the reference implementations in torch._refs and _prims",
    "module": "torch.testing's module_db: nn modules",
    "optim": "torch.testing's optim_db: optimizers",
    "hop": "torch.testing's hop_db: higher-order operators",
}
"""The suites by name, and what each one runs over."""

PHASES = (
    "forward",
    "backward",
    "second_order",
    "forward_mode",
    "out",
    "inplace",
    "noncontiguous",
    "reference",
    "special",
    "errors",
    "promotion",
    "determinism",
    "dynamic_batch",
    "perf",
    "stress",
)
DEFAULT_PHASES = ("forward", "backward")


@dataclass(frozen=True)
class Group:
    """One entry in one dtype and phase; ``seed`` is that of the run."""

    suite: str
    entry: str
    dtype: str
    phase: str
    family: str = field(default="", compare=False)
    seed: int = 0

    def case_id(self, sample: int | str) -> str:
        """16 hex digits over all that decides the sample's inputs: equal on every machine and backend."""
        content = [self.suite, self.entry, self.dtype, self.phase, sample, self.seed]
        text = json.dumps(content, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def number(self) -> int:
        """What seeds the group's samples and puts it into a shard."""
        return int(self.case_id("group"), 16)

    def __str__(self) -> str:
        return f"{self.entry} {self.dtype} {self.phase}"


@dataclass(frozen=True)
class Selection:
    """Which groups of a suite to run, and which of their samples.

    Entries are shell patterns; nothing given means all. ``samples`` are numbers of samples,
    ``most`` bounds how many of a group run, ``stratify`` how many groups do, taken evenly
    from all families of operators, phases and kinds of dtypes.
    """

    suite: str
    entries: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    phases: tuple[str, ...] = DEFAULT_PHASES
    samples: tuple[int, ...] = ()
    most: int | None = None
    stratify: int | None = None
    shard: tuple[int, int] = (1, 1)
    seed: int = 0


def plan(selection: Selection) -> list[Group]:
    """The groups of ``selection``, in the order of the database, dtypes and phases.

    Raises :class:`UnknownName` for a suite, entry, dtype or phase that there is not, and
    :class:`UsageError` if nothing is left (a shard may be empty).
    """
    from .databases import entries_of

    for phase in selection.phases:
        if phase not in PHASES:
            raise UnknownName("phase", phase, PHASES)
    entries = entries_of(selection.suite)
    for pattern in selection.entries:
        if not any(fnmatchcase(name, pattern) for name in entries):
            raise UnknownName(f"entry of the suite {selection.suite}", pattern, entries)
    dtypes = {dtype for entry in entries.values() for dtype in entry.dtypes}
    for dtype in selection.dtypes:
        if dtype not in dtypes:
            raise UnknownName("dtype", dtype, sorted(dtypes))
    chosen = [
        Group(selection.suite, name, dtype, phase, entry.family, selection.seed)
        for name, entry in entries.items()
        if not selection.entries or any(fnmatchcase(name, one) for one in selection.entries)
        for dtype in entry.dtypes
        if not selection.dtypes or dtype in selection.dtypes
        for phase in selection.phases
        if entry.has(phase, dtype)
    ]
    if not chosen:
        raise UsageError(
            f"no group of the suite {selection.suite} is left: no entry named has these dtypes and phases"
        )
    if selection.stratify is not None:
        chosen = stratified(chosen, selection.stratify)
    index, count = selection.shard
    return [one for one in chosen if one.number % count == index - 1]


def stratified(groups: Sequence[Group], count: int) -> list[Group]:
    """``count`` of the groups, evenly from every family, phase and kind of dtype; always the same ones."""
    strata: dict[tuple[str, str, str], list[Group]] = defaultdict(list)
    for group in sorted(groups, key=lambda one: one.number):
        strata[group.family, group.phase, group.dtype.rstrip("0123456789")].append(group)
    kept = {group for group, _ in zip(_in_turn(strata.values()), range(count), strict=False)}
    return [group for group in groups if group in kept]


def _in_turn(strata: Iterable[list[Group]]) -> Iterator[Group]:
    """The first of every stratum, then the second of every one, and so on."""
    rows = list(strata)
    for place in range(max(map(len, rows), default=0)):
        yield from (row[place] for row in rows if place < len(row))
