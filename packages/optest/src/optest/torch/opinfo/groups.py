"""The groups that a suite consists of, and the selection of some of them; does not need PyTorch.

Not here: which groups there are (``planning``), and the samples of a group (``phases``), whose
number is only known after generating them.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field

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
    "automatic_dynamic",
    "views",
    "memory",
    "transfer",
    "perf",
    "stress",
)
DEVICE_PHASES = ("views", "memory", "transfer")
"""Phases that test something that only a device has."""
DEFAULT_PHASES = ("forward", "backward")


@dataclass(frozen=True)
class Group:
    """One entry in one dtype and phase; ``seed`` is the seed of the run."""

    suite: str
    entry: str
    dtype: str
    phase: str
    family: str = field(default="", compare=False)
    seed: int = 0

    def case_id(self, sample: int | str) -> str:
        """Return 16 hex digits that identify the sample's inputs, equal on every machine and backend."""
        content = [self.suite, self.entry, self.dtype, self.phase, sample, self.seed]
        text = json.dumps(content, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def number(self) -> int:
        """The number that seeds the group's samples and decides its shard."""
        return int(self.case_id("group"), 16)

    def __str__(self) -> str:
        return f"{self.entry} {self.dtype} {self.phase}"


@dataclass(frozen=True)
class Selection:
    """Which groups of a suite to run, and which of their samples.

    ``entries`` are shell patterns; an empty field selects everything. ``samples`` are sample numbers,
    and ``most`` limits how many samples of a group run. ``stratify`` limits how many groups run, taken
    evenly from all families of operators, phases and kinds of dtypes.
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
