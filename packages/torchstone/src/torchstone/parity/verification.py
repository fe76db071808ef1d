"""The result of verifying a model: a verdict on each tensor, by stage.

These are records only; :mod:`.verify` fills them in.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from optest.core.comparison import Comparison

from ..errors import UnsupportedNode
from .compilation import Compilation

Stage = Literal["artifact", "compiled", "gradients", "training", "step"]
DType = Literal["float32", "float64", "bfloat16", "float16"]

STAGES: tuple[Stage, ...] = ("artifact", "compiled", "gradients")
TRAINING_STAGES: tuple[Stage, ...] = ("training", "step")
"""Stages of several training steps: ``torch.compile`` with PyTorch's optimizer, and whole steps."""


@dataclass(frozen=True)
class Check:
    """One tensor's verdict: ``name`` is a path such as ``output.logits`` or a parameter's name."""

    stage: Stage
    name: str
    comparison: Comparison


@dataclass(frozen=True)
class StageSummary:
    """A summary of a stage: the largest difference from eager, and how many tensors float64 decided."""

    stage: Stage
    tensors: int
    max_abs: float
    max_ulp: int
    by_float64: int
    verdict: str

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass
class Verification:
    """The results of :func:`verify`.

    ``errors`` has the reason for each stage that could not be finished. ``notes`` has
    deviations from the usual comparison. ``in_eager`` names the overloads that may run in
    eager PyTorch. ``unsupported`` has the operators that do not compile.
    """

    model: str
    dtype: DType
    stages: tuple[Stage, ...]
    checks: list[Check] = field(default_factory=list)
    errors: dict[Stage, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    compilation: Compilation = field(default_factory=Compilation)
    in_eager: tuple[str, ...] = ()
    unsupported: list[UnsupportedNode] = field(default_factory=list)

    def refused(self, nodes: Iterable[UnsupportedNode]) -> None:
        """Note operators that do not compile, each once."""
        known = {node.overload for node in self.unsupported}
        self.unsupported += [node for node in nodes if node.overload not in known]

    @property
    def failures(self) -> list[Check]:
        return [check for check in self.checks if not check.comparison.passed]

    @property
    def passed(self) -> bool:
        """Whether every stage compared at least one tensor, all agree, and nothing fell back to eager."""
        compared = {check.stage for check in self.checks}
        return (
            not self.errors
            and not self.failures
            and compared.issuperset(self.stages)
            and not self.compilation.fallbacks.keys() - set(self.in_eager)
        )

    def summary(self) -> list[StageSummary]:
        """One line for each stage."""
        lines = []
        for stage in self.stages:
            found = [check.comparison for check in self.checks if check.stage == stage]
            wrong = sum(not comparison.passed for comparison in found)
            lines.append(
                StageSummary(
                    stage=stage,
                    tensors=len(found),
                    max_abs=max((float(comparison.max_abs) for comparison in found), default=0.0),
                    max_ulp=max((comparison.max_ulp or 0 for comparison in found), default=0),
                    by_float64=sum(comparison.passed_by == "accuracy" for comparison in found),
                    verdict="error" if stage in self.errors else f"{wrong} differ" if wrong else "passed",
                )
            )
        return lines

    def to_dict(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "dtype": self.dtype,
            "passed": self.passed,
            "checks": [
                {"stage": check.stage, "name": check.name, **check.comparison.to_dict()}
                for check in self.checks
            ],
            "errors": dict(self.errors),
            "notes": list(self.notes),
            "compilation": self.compilation.to_dict(),
        }
