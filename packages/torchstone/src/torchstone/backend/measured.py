"""Graphs that eager PyTorch runs as a whole: those for which it was measured to be faster than a program."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import torch
from torch.fx import Graph, GraphModule

from .. import spans
from .._version import __version__
from ..compiler.graphs import first_line, output_values
from ..config import config
from ..runtime import get_engine
from ..runtime.cache import digest
from ..runtime.decisions import Decisions
from .fallback import MixedGraph
from .layouts import Layout
from .part import Run, refuse_tangents
from .passes import Region
from .records import GraphRecord
from .watching import compile_part, is_watched

_COMPILED, _EAGER = "compiled", "eager PyTorch"
_HANDOVER_S = 5e-6
_GAIN = 1.05
"""How many times as fast as the program eager PyTorch has to be."""
_ROUNDINGS = 64
"""Roundings of a graph's largest result that another result may differ by."""
_DIFFERENT = 1e-3
"""Share of integers that rounding may change: a position of a maximum, a comparison."""


def compile_measured(region: Region, static: Iterable[int] = ()) -> Run:
    """``region`` compiled, in parts where eager has to step in; its second call may choose how it runs.

    The first call always runs what was compiled.
    """
    decisions = None if is_watched() else _decisions(region)
    eager = None if decisions is None else EagerGraph(region)  # before the region is changed
    compiled = MixedGraph(region) if region.survey.eager else compile_part(region, static)
    if decisions is None or eager is None:
        return compiled
    return MeasuredGraph(compiled, eager, region.record, decisions)


def _decisions(region: Region) -> Decisions | None:
    """Where to ask; None if eager PyTorch may not run the graph, or would compute something else."""
    options, survey = region.options, region.survey
    if not options.fallback or not options.tuning or config.tuning_budget_s <= 0:
        return None
    if survey.seeded or options.check_indices or options.check_values or options.passes:
        return None
    outputs = output_values(region.module)
    tensors = [node.meta.get("val") for node in region.module.graph.find_nodes(op="placeholder")]
    tensors += [node.meta["val"] for node in outputs]
    if not outputs or any(isinstance(one, torch.Tensor) and one.device.type != "cpu" for one in tensors):
        return None
    found: Decisions | None = getattr(get_engine(options.engine, options.device), "decisions", None)
    return found


class MeasuredGraph:
    """Runs what was compiled until its second call, which measures what runs from then on.

    Nothing but time and rounding depends on the choice: the graph neither changes its inputs nor draws
    random numbers. Safe from several threads.
    """

    def __init__(self, compiled: Run, eager: EagerGraph, record: GraphRecord, decisions: Decisions) -> None:
        self._run: Run = compiled
        self._candidates: tuple[Run, EagerGraph] | None = (compiled, eager)
        self._question = {
            "what": "graph",
            "graph": eager.digest,
            "torchstone": __version__,
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
        }
        self._decisions = decisions
        self._record = record
        self._called = False

    def __call__(self, inputs: list[Any]) -> list[Any]:
        candidates = self._candidates
        if candidates is not None:
            if self._called:
                self._choose(*candidates, inputs)
            self._called = True
        return self._run(inputs)

    def _choose(self, compiled: Run, eager: EagerGraph, inputs: list[Any]) -> None:
        found = self._decisions.best(
            self._question,
            {_COMPILED: lambda: lambda: compiled(inputs), _EAGER: lambda: lambda: eager(inputs)},
            agree=_agree,
            handover_s=_HANDOVER_S,
            gain=_GAIN,
            budget_s=config.tuning_budget_s,
        )
        self._record.in_eager += found.chosen == _EAGER
        self._run, self._candidates = (eager if found.chosen == _EAGER else compiled), None


class EagerGraph:
    """A functional graph in eager PyTorch, with outputs in the memory order that the graph promises."""

    def __init__(self, region: Region) -> None:
        graph = Graph()
        graph.output(graph.graph_copy(region.module.graph, {}))
        self._module = GraphModule(region.module, graph)
        self._inputs = [_described(node.meta.get("val")) for node in graph.find_nodes(op="placeholder")]
        self._outputs = region.outputs
        self._name = f"{region.record.kind}{first_line(region.module)}"
        promised = (node.meta["val"] for node in output_values(region.module))
        self._promised = [Layout(tuple(one.shape), one.stride(), dense=False) for one in promised]

    @cached_property
    def digest(self) -> str:
        """Of the operators, their arguments, and the inputs' dtypes, shapes and strides."""
        return digest([self._module.code.encode(), *self._inputs])

    def __call__(self, inputs: list[Any]) -> list[Any]:
        refuse_tangents(inputs)
        with spans.span("eager", self._name), torch.no_grad():
            results = [
                made if made.stride() == promised.stride else promised.of(made)
                for made, promised in zip(self._module.forward(*inputs), self._promised, strict=True)
            ]
        return results if self._outputs.plain else self._outputs.assemble(inputs, results)


def _described(value: Any) -> bytes:
    if not isinstance(value, torch.Tensor):
        return repr(value).encode()
    return f"{value.dtype} {list(value.shape)} {value.stride()}".encode()


def _agree(expected: Sequence[Any], found: Sequence[Any]) -> bool:
    """Equal but for rounding.

    A gradient that is zero but for rounding has no digit in common with another way to compute it. So what
    is small beside the largest result may differ by roundings of that one.
    """
    pairs = [
        (one, other)
        for one, other in zip(expected, found, strict=True)
        if isinstance(one, torch.Tensor) and one.numel()
    ]
    largest = max((_largest(one) for one, _ in pairs if _rounds(one)), default=0.0)
    return all(_alike(one, other, largest) for one, other in pairs)


def _alike(one: torch.Tensor, other: torch.Tensor, largest: float) -> bool:
    if not _rounds(one):
        return int((one != other).count_nonzero()) <= _DIFFERENT * one.numel()
    eps = torch.finfo(one.dtype).eps
    atol = eps**0.5 * _largest(one) + _ROUNDINGS * eps * largest
    return torch.allclose(one, other, rtol=eps**0.5, atol=atol, equal_nan=True)


def _rounds(tensor: torch.Tensor) -> bool:
    return tensor.dtype.is_floating_point or tensor.dtype.is_complex


def _largest(tensor: torch.Tensor) -> float:
    return float(tensor.abs().nan_to_num(0, 0, 0).max())
