"""What was compiled: one record per graph, for reports, the CLI and tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ..errors import UnsupportedNode
from ..torch_internals.operators import OpOverload


@dataclass
class GraphRecord:
    """One graph that AOTAutograd handed over.

    ``kind`` is forward, backward, inference or step; ``native`` counts the calls of
    each overload that were compiled; ``fallbacks`` lists what runs in eager for want of a lowering, and
    ``preferred`` what does because it was measured to be faster there; ``in_eager`` counts the shapes
    for which the whole function does that the graph is of; ``draws`` says whether programs draw random
    numbers; ``seconds`` has what each pass took, all parts and specializations together.
    """

    kind: str
    native: Counter[str] = field(default_factory=Counter)
    fallbacks: list[UnsupportedNode] = field(default_factory=list)
    preferred: list[UnsupportedNode] = field(default_factory=list)
    in_eager: int = 0
    draws: bool = False
    compile_s: float = 0.0
    seconds: dict[str, float] = field(default_factory=dict)

    def count(self, targets: Iterable[Any]) -> None:
        """Add calls that were compiled."""
        self.native.update(str(target) for target in targets if isinstance(target, OpOverload))


_listeners: list[list[GraphRecord]] = []


def publish(record: GraphRecord) -> None:
    for records in _listeners:
        records.append(record)


@contextmanager
def recorded() -> Iterator[list[GraphRecord]]:
    """Collects the records of every graph compiled inside the block."""
    records: list[GraphRecord] = []
    _listeners.append(records)
    try:
        yield records
    finally:
        _listeners.remove(records)
