"""The questions about indices that ``config.check_indices`` asks: whether they are in range.

Without checks, a read at an index out of range reads the nearest element (StableHLO's ``gather``
clamps), and a write there writes nothing (``scatter`` drops it).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from ..lowering import load
from .graphs import bind, fake_arguments
from .questions import Question


def index_questions(node: Node) -> Iterator[Question]:
    """Yield one question per index operand of a call. Masks (bool, uint8) and probabilities do not count."""
    lowering = load().get(node.target)
    if lowering is None or lowering.indices is None:
        return
    rule = lowering.indices
    given = bind(lowering, node.args, node.kwargs)
    fake = fake_arguments(given)
    operand = given[rule.operand]
    listed = isinstance(operand, (list, tuple))
    for position, index in enumerate(operand if listed else [operand]):
        if not isinstance(index, Node) or _is_no_index(index.meta["val"].dtype):
            continue
        source, axes = rule.extent({**fake, "dim": position} if listed else fake)
        exempt = rule.exempt if rule.exempt is not None else fake.get("ignore_index")
        fits = _Fits(axes, rule.negative, exempt)
        name = f"{rule.operand}[{position}]" if listed else rule.operand
        low, high = fits.bounds(fake[source])
        yield Question(f"{name} must lie in [{low}, {high})", fits, {"index": index, "source": given[source]})


def _is_no_index(dtype: torch.dtype) -> bool:
    return dtype in (torch.bool, torch.uint8) or dtype.is_floating_point


@dataclass(frozen=True)
class _Fits:
    """A test of which elements of an index are in range for ``axes`` of its source, or exempt."""

    axes: Sequence[int]
    negative: bool
    exempt: int | None

    def bounds(self, source: torch.Tensor) -> tuple[Any, Any]:
        """Return the first index in range, and the first one past the range."""
        extent: Any = 1
        for axis in self.axes:
            size = source.shape[axis]
            extent = size if extent == 1 else extent * size
        return (-extent if self.negative else 0), extent

    def __call__(self, index: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        low, high = self.bounds(source)
        inside = (index >= low) & (index < high)
        return inside if self.exempt is None else inside | (index == self.exempt)
