"""One static graph as a callable: compiled whole or in parts, mutations written back."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from ..compiler.support import find_unsupported
from ..errors import FallbackRefused, FallbackWarning
from .fallback import MixedGraph
from .options import Options
from .part import CompiledPart
from .passes import complete_metadata, extract_mutations
from .records import GraphRecord


class Region:
    """A graph of concrete shapes. Call it with the list of its inputs; returns the list of its outputs.

    Inputs that the graph mutates are written after all inputs were read.
    ``static`` are positions whose memory stays from call to call.
    """

    def __init__(
        self, module: GraphModule, options: Options, record: GraphRecord, static: Sequence[int] = ()
    ) -> None:
        complete_metadata(module)
        self._mutated = extract_mutations(module)
        unsupported = find_unsupported(module)
        record.fallbacks.extend(unsupported)
        if not unsupported:
            self._run: Callable[[list[Any]], list[Any]] = CompiledPart(module, options, record, static)
            return
        if not options.fallback:
            listing = "\n".join(node.describe() for node in unsupported)
            raise FallbackRefused(
                f"{len(unsupported)} operator(s) of this {record.kind} graph would run in eager PyTorch:\n"
                + listing,
                hint='allow it with options={"fallback": True}, or see `torchstone ops`',
            )
        names = ", ".join(f"{node.overload} ({node.count}×)" for node in unsupported)
        warnings.warn(
            f"torchstone runs these operators in eager PyTorch, between compiled parts: {names}",
            FallbackWarning,
            stacklevel=2,
        )
        self._run = MixedGraph(module, options, record)

    def __call__(self, inputs: list[Any]) -> list[Any]:
        results = self._run(inputs)
        if not self._mutated:
            return results
        count = len(self._mutated)
        with torch.no_grad():
            torch._foreach_copy_([inputs[position] for position in self._mutated], results[:count])
        return results[count:]
