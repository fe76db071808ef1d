"""Observe ``torch.compile``: allow no fallback, and count graphs, graph breaks and operators.

Dynamo's counters are global to the process. Watching resets Dynamo, so that
everything that is counted was compiled inside the block.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from ..backend.records import GraphRecord, recorded
from ..errors import TorchstoneError
from ..torch_internals import dynamo

DELIBERATE = "Call to `torch._dynamo.graph_break()`"
"""Dynamo's name for a graph break that a program requests, as ``torch.optim`` does around each step."""


@dataclass
class Compilation:
    """A record of what was compiled inside a :func:`watched` block; complete when the block ends.

    ``breaks`` counts graph breaks by reason, ``deliberate_breaks`` those that a
    program asks for with ``torch._dynamo.graph_break()``.
    """

    records: list[GraphRecord] = field(default_factory=list)
    breaks: Counter[str] = field(default_factory=Counter)
    deliberate_breaks: int = 0

    @property
    def graphs(self) -> Counter[str]:
        """Graphs by kind: forward, backward, inference."""
        return Counter(record.kind for record in self.records)

    @property
    def native(self) -> Counter[str]:
        """Calls of each overload that were compiled."""
        return sum((record.native for record in self.records), Counter())

    @property
    def fallbacks(self) -> Counter[str]:
        """Calls of each overload that run in eager PyTorch."""
        found: Counter[str] = Counter()
        for node in (node for record in self.records for node in record.fallbacks):
            found[node.overload] += node.count
        return found

    def to_dict(self) -> dict[str, Any]:
        return {
            "graphs": dict(self.graphs),
            "breaks": dict(self.breaks),
            "deliberate_breaks": self.deliberate_breaks,
            "native_operators": len(self.native),
            "native_calls": self.native.total(),
            "fallback_calls": self.fallbacks.total(),
            "fallbacks": dict(self.fallbacks),
            "compile_s": sum(record.compile_s for record in self.records),
        }


@contextmanager
def watched() -> Iterator[Compilation]:
    """Count what ``torch.compile`` does inside the block, starting from a reset Dynamo."""
    dynamo.reset()
    before = Counter(dynamo.counters.get()["graph_break"])
    found = Compilation()
    with recorded() as found.records:
        try:
            yield found
        finally:
            for reason, count in (Counter(dynamo.counters.get()["graph_break"]) - before).items():
                first_line = reason.partition("\n")[0]
                if first_line == DELIBERATE:
                    found.deliberate_breaks += count
                else:
                    found.breaks[first_line] += count


def compiled(function: Callable[..., Any], *, fallback: bool = False) -> Callable[..., Any]:
    """Compile ``function`` with ``backend="torchstone"``; without ``fallback``, a fallback is an error."""
    return torch.compile(function, backend="torchstone", options={"fallback": fallback})


@contextmanager
def plain_errors() -> Iterator[None]:
    """Raise Torchstone's own error if Dynamo wrapped it in :class:`BackendCompilerFailed`."""
    try:
        yield
    except dynamo.BackendCompilerFailed.get() as error:
        inner = error.inner_exception
        if isinstance(inner, TorchstoneError):
            raise inner from error
        raise
