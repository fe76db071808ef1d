"""Which operators a model calls, and how many of its calls are covered.

Not here: watching the model (``optest.torch.model_calls``, which needs PyTorch).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .operators import Level, OperatorCoverage

_PREFIXES = ("nn.functional.", "", "Tensor.", "special.", "linalg.", "fft.")
_DUNDERS = {"truediv": "div", "invert": "bitwise_not", "and": "bitwise_and", "or": "bitwise_or"}
"""PyTorch's names for operators that Python names differently."""


@dataclass(frozen=True)
class Called:
    """A PyTorch function that a model calls; ``operator`` is None if the suite has no entry for it."""

    function: str
    calls: int
    operator: str | None
    level: Level | None

    def to_dict(self) -> dict[str, Any]:
        level = None if self.level is None else self.level.value
        return {"function": self.function, "calls": self.calls, "operator": self.operator, "level": level}


@dataclass(frozen=True)
class ModelCoverage:
    """All functions that a model calls, the most called first."""

    model: str
    called: tuple[Called, ...]

    @property
    def calls(self) -> int:
        return sum(one.calls for one in self.called)

    @property
    def covered_calls(self) -> int:
        return sum(one.calls for one in self.called if one.level is Level.FULL)

    def to_dict(self) -> dict[str, Any]:
        return {
            "model": self.model, "calls": self.calls, "covered_calls": self.covered_calls,
            "called": [one.to_dict() for one in self.called],
        }  # fmt: skip


def model_coverage(
    model: str, calls: Mapping[str, int], operators: Sequence[OperatorCoverage]
) -> ModelCoverage:
    """Match ``calls`` (by PyTorch's name, like ``torch.nn.functional.linear``) with recorded operators."""
    levels = {one.name: one.level for one in operators}
    found = []
    for function, count in Counter(calls).most_common():
        name = next((one for one in candidates(function) if one in levels), None)
        found.append(Called(function, count, name, None if name is None else levels[name]))
    return ModelCoverage(model, tuple(found))


def candidates(function: str) -> list[str]:
    """Return the names that ``function`` may have in a suite, the likeliest first."""
    path = function.removeprefix("torch.")
    base = path.rpartition(".")[2]
    names = [path, path.removeprefix("Tensor.")]
    if base.startswith("__") and base.endswith("__"):
        names.append(base)
        plain = base.strip("_")
        stripped = plain[1:] if plain[:1] in ("r", "i") and plain[1:] in _ARITHMETIC else plain
        base = _DUNDERS.get(stripped, stripped)
    base = base.removesuffix("_") if not base.startswith("_") else base
    names += [f"{prefix}{base}" for prefix in _PREFIXES]
    return list(dict.fromkeys(names))


_ARITHMETIC = frozenset(
    {"add", "sub", "mul", "div", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor"}
)
