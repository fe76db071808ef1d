"""Compiles one static graph, whole or in parts, to a callable that also writes back the graph's mutations."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from ..errors import FallbackRefused, FallbackWarning, UnsupportedNode
from ..torch_internals.tensors import foreach_copy
from .fallback import MixedGraph
from .options import Options
from .outputs import Aliasing
from .part import Run
from .passes import DIVIDING, Region
from .records import GraphRecord
from .unknown import is_unknown
from .watching import compile_part


def compile_region(
    module: GraphModule,
    options: Options,
    record: GraphRecord,
    aliasing: Aliasing,
    static: Sequence[int] = (),
) -> Run:
    """Compile a graph with concrete shapes, in parts if eager PyTorch must run some of its operators.

    Inputs that the graph mutates are written after all inputs were read. ``static`` are
    positions of inputs whose memory stays the same from call to call. Raises :class:`FallbackRefused`
    if an operator has no lowering and the options allow no fallback, and
    :class:`CaptureError` for arguments that eager PyTorch refuses.
    """
    region = Region(module, options, record, aliasing)
    DIVIDING.run(region)
    unsupported = region.survey.unsupported
    record.fallbacks.extend(unsupported)
    record.preferred.extend(region.survey.preferred)
    if unsupported:
        _report_fallback(unsupported, options, record)
    record.draws |= region.survey.seeded
    mixed = region.survey.eager or any(map(is_unknown, module.graph.nodes))
    run = MixedGraph(region) if mixed else compile_part(region, static)
    return _Mutating(run, list(region.mutated)) if region.mutated else run


def _report_fallback(unsupported: Sequence[UnsupportedNode], options: Options, record: GraphRecord) -> None:
    if not options.fallback:
        listing = "\n".join(node.describe() for node in unsupported)
        raise FallbackRefused(
            f"{len(unsupported)} operator(s) of this {record.kind} graph would run in eager PyTorch:\n"
            + listing,
            hint='allow it with options={"fallback": True}, or see `torchstone ops`',
            nodes=unsupported,
        )
    names = ", ".join(f"{node.overload} ({node.count}×)" for node in unsupported)
    warnings.warn(
        f"torchstone runs these operators in eager PyTorch, between compiled parts: {names}",
        FallbackWarning,
        stacklevel=3,
    )


class _Mutating:
    """A compiled graph whose first results are written into the inputs that it mutates, and not returned."""

    def __init__(self, run: Run, mutated: Sequence[int]) -> None:
        self._run = run
        self._mutated = mutated

    def __call__(self, inputs: list[Any]) -> list[Any]:
        results = self._run(inputs)
        count = len(self._mutated)
        targets = [_plain(inputs[position]) for position in self._mutated]
        with torch.no_grad():
            if any(one.is_neg() or one.is_conj() for one in targets):  # operators on lists refuse these
                for target, values in zip(targets, results, strict=False):
                    target.copy_(values)
            else:
                foreach_copy(targets, results[:count])
        return results[count:]


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """Return ``tensor`` as a plain tensor: AOTAutograd's mode around a first call refuses subclasses."""
    return tensor if type(tensor) in _PLAIN else tensor.as_subclass(torch.Tensor)


_PLAIN = (torch.Tensor, torch.nn.Parameter)
