"""What of a model compiles and what does not: an explanation to print or to read as data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export import ExportedProgram

from ..errors import TorchstoneError, UnsupportedNode
from ..torch_internals.operators import OpOverload
from .capture import capture
from .graphs import operator_nodes
from .normalize import normalize
from .support import find_unsupported


@dataclass
class Explanation:
    """``native`` counts the overloads that lower; ``unsupported`` lists those that do not.

    ``error`` is set if the model could not even be captured.
    """

    model: str
    native: Counter[str] = field(default_factory=Counter)
    unsupported: list[UnsupportedNode] = field(default_factory=list)
    error: str | None = None

    @property
    def compiles(self) -> bool:
        return self.error is None and not self.unsupported

    def __str__(self) -> str:
        if self.error is not None:
            return f"{self.model} cannot be captured:\n{self.error}"
        calls = sum(self.native.values())
        lines = [f"{self.model}: {len(self.native)} operators in {calls} calls lower to StableHLO"]
        lines += [f"  {name} ({count}×)" for name, count in self.native.most_common()]
        if self.unsupported:
            lines.append(f"{len(self.unsupported)} operators do not:")
            lines += [node.describe() for node in self.unsupported]
        else:
            lines.append("everything compiles")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON-able data."""
        return {
            "model": self.model,
            "compiles": self.compiles,
            "native": dict(self.native.most_common()),
            "unsupported": [
                {"overload": n.overload, "count": n.count, "reason": n.reason, "locations": list(n.locations)}
                for n in self.unsupported
            ],
            "error": self.error,
        }


def explain(
    model: torch.nn.Module | Callable[..., Any] | ExportedProgram,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
) -> Explanation:
    """Capture and normalize ``model`` and say of each operator whether it lowers."""
    name = getattr(model, "__qualname__", type(model).__name__)
    try:
        program = normalize(capture(model, args, kwargs, dynamic_shapes))
    except TorchstoneError as error:
        return Explanation(name, error=str(error))
    unsupported = find_unsupported(program.graph_module)
    missing = {node.overload for node in unsupported}
    native = Counter(
        str(node.target)
        for node in operator_nodes(program.graph_module)
        if isinstance(node.target, OpOverload) and str(node.target) not in missing
    )
    return Explanation(name, native, unsupported)
