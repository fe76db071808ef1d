"""Records of what was compiled, one for each graph, for reports, the CLI and tests."""

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
    """The record of one graph that AOTAutograd handed over.

    ``kind`` is forward, backward, inference or step. ``native`` counts the compiled calls of each overload.
    ``fallbacks`` lists the operators that run in eager PyTorch because they have no lowering, and
    ``preferred`` those that run there because that was measured to be faster. ``in_eager`` counts the sets of
    shapes for which the whole function of the graph runs in eager PyTorch. ``draws`` says whether programs
    draw random numbers. ``compile_s`` is the time in seconds that compiling the graph took, and ``seconds``
    the time that each pass took, summed over all parts and specializations.
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
        """Count the overloads among ``targets`` as compiled calls."""
        self.native.update(str(target) for target in targets if isinstance(target, OpOverload))


_listeners: list[list[GraphRecord]] = []


def publish(record: GraphRecord) -> None:
    for records in _listeners:
        records.append(record)


@contextmanager
def recorded() -> Iterator[list[GraphRecord]]:
    """Collect the records of all graphs that are compiled inside the block."""
    records: list[GraphRecord] = []
    _listeners.append(records)
    try:
        yield records
    finally:
        _listeners.remove(records)
