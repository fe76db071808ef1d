"""A traced step on an engine, which updates the step's state in place, in the engine's memory."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import reduce
from typing import Any, Protocol

import torch
from torch.fx import Node

from .. import hlo
from ..backend.fallback import MixedGraph
from ..backend.options import Options
from ..backend.part import draw_seed
from ..backend.passes import Region, arrange_region, complete_region, extract_region, split_region
from ..backend.records import GraphRecord, publish
from ..compiler.graphs import output_node, output_values
from ..compiler.passes import (
    add_results_of_checks,
    check_call_arguments,
    lower,
    require_lowerings,
    survey_operators,
)
from ..compiler.pipeline import Pipeline, compiler_pass
from ..errors import raise_failed_checks
from ..runtime import CompileOptions
from ..runtime.buffers import BufferSpec
from ..runtime.executable import LoadedProgram
from ..runtime.residents import Resident, ResidentCall, reside, shown
from ..runtime.torch_bridge import owned
from ..torch_internals.operators import namespace
from ..torch_internals.tensors import foreach_copy
from .live_memory import LiveMemory, live_memory
from .trace import Traced

aten = namespace("aten")


@compiler_pass("order-state", needs=["functional", "metadata"], guarantees=["signature"])
def order_state(region: Region) -> None:
    """Give new values of state the strides of the old ones, because they are written into the same memory."""
    inputs = region.module.graph.find_nodes(op="placeholder")
    output, values = output_node(region.module), output_values(region.module)
    with region.module.graph.inserting_before(output):
        for place, argument in enumerate(region.mutated):
            values[place] = region.module.graph.call_function(aten.clone.default, (values[place],))
            values[place].meta = {"val": inputs[argument].meta["val"]}
    output.args = (tuple(values),)


@compiler_pass("protect-state", needs=["checks"])
def protect_state(region: Region) -> None:
    """Keep the old state if a check of an index or a value fails."""
    if not region.checks:
        return
    graph, output, values = region.module.graph, output_node(region.module), output_values(region.module)
    inputs, holds = graph.find_nodes(op="placeholder"), values[-len(region.checks) :]

    def call(operator: Any, *operands: Node) -> Node:
        node = graph.call_function(operator, operands)
        node.meta = {"val": operator(*(one.meta["val"] for one in operands))}
        return node

    with graph.inserting_before(output):
        fine = reduce(lambda one, other: call(aten.logical_and.default, one, other), holds)
        for place, argument in enumerate(region.mutated):
            values[place] = call(aten.where.self, fine, values[place], inputs[argument])
    output.args = (tuple(values),)


SURVEYING: Pipeline[Region] = Pipeline(
    [complete_region, check_call_arguments, extract_region, survey_operators]
)
"""Passes that prepare the functional graph of a step before it is compiled, whole or in parts."""
COMPILING: Pipeline[Region] = Pipeline(
    [order_state, require_lowerings, arrange_region, add_results_of_checks, protect_state, lower],
    given=SURVEYING.guarantees,
)
"""Passes that turn a step into StableHLO, if eager PyTorch runs none of its operators."""
DIVIDING: Pipeline[Region] = Pipeline([split_region], given=SURVEYING.guarantees)
"""Passes that prepare a step that is compiled in parts."""

Created = list[tuple[Resident, torch.Tensor]]

_SMALL = 0.1
"""Savings below this share of a step's memory are not worth a second compile."""


class StepProgram(Protocol):
    """One step for one form of state and batch.

    ``updated`` lists the positions of the state tensors that the step writes. ``record.draws`` says whether
    it draws random numbers.
    """

    traced: Traced
    updated: list[int]
    record: GraphRecord

    def __call__(
        self,
        residents: Sequence[Resident],
        state: Sequence[torch.Tensor],
        tensors: list[torch.Tensor],
    ) -> tuple[Created, list[torch.Tensor]]:
        """Run once: update the state in place, and return newly created state and the other outputs.

        ``state`` holds the tensors over the memory of ``residents``. ``tensors`` holds the numbers and the
        batch.
        """
        ...


def step_program(traced: Traced, state: int, engine: Any) -> StepProgram:
    """Return the step as one program, or in parts around operators that eager PyTorch runs by choice.

    ``state`` is the number of leading arguments that are state. Raises
    :class:`~torchstone.errors.UnsupportedOperators` if an operator has no lowering.
    """
    record = GraphRecord("step")
    started = time.perf_counter()
    region = Region(traced.module, Options.parse(None), record)
    live = live_memory(traced.module)
    SURVEYING.run(region)
    record.preferred.extend(region.survey.preferred)
    record.draws = region.survey.seeded
    divided = bool(region.survey.preferred) and not region.survey.unsupported
    program = (
        DividedStep(traced, region, engine) if divided else WholeStep(traced, region, state, engine, live)
    )
    record.compile_s += time.perf_counter() - started
    publish(record)
    return program


class DividedStep:
    """A step in parts. New values of the state are written over the old ones after all parts have run."""

    def __init__(self, traced: Traced, region: Region, engine: Any) -> None:
        self.traced, self.record = traced, region.record
        self.updated = list(region.mutated)
        DIVIDING.run(region)
        self._run = MixedGraph(region)
        self._device = engine.device

    def __call__(
        self,
        residents: Sequence[Resident],
        state: Sequence[torch.Tensor],
        tensors: list[torch.Tensor],
    ) -> tuple[Created, list[torch.Tensor]]:
        """See :class:`StepProgram`."""
        results = self._run([*state, *tensors])
        if self.updated:  # the first step that accumulates gradients only makes them
            with torch.no_grad():
                foreach_copy([state[place] for place in self.updated], results[: len(self.updated)])
        made = results[len(self.updated) :]
        count = len(self.traced.created)
        return [reside(self._device, one.contiguous()) for one in made[:count]], made[count:]


class WholeStep:
    """A step that is one program, which updates its state in the engine's memory.

    It is compiled for speed when it first runs, unless :meth:`use` selected little memory before.
    """

    def __init__(self, traced: Traced, region: Region, state: int, engine: Any, live: LiveMemory) -> None:
        self.traced, self.record = traced, region.record
        self._live = live
        COMPILING.run(region)
        region.record.native.update(region.survey.native)
        self.updated = list(region.mutated)
        updates = tuple((argument, result) for result, argument in enumerate(region.mutated))
        self._state, self._updates, self._engine = state, updates, engine
        self._module = region.built().serialize(hlo.resolve_version("current"))
        self._names = [argument.name for argument in region.arguments]
        self._executables: dict[bool, LoadedProgram] = {}
        self._call: ResidentCall | None = None
        self._specs: Sequence[BufferSpec] = ()
        self._orders = [(place - state, order) for place, order in region.orders.by_tensor if place >= state]
        self._seeded, self._checks = region.survey.seeded, region.checks
        self._device = engine.device
        self._layouts = {
            place - len(updates): layout for place, layout in region.orders.outputs if place >= len(updates)
        }

    def __call__(
        self,
        residents: Sequence[Resident],
        state: Sequence[torch.Tensor],
        tensors: list[torch.Tensor],
    ) -> tuple[Created, list[torch.Tensor]]:
        """See :class:`StepProgram`."""
        if self._call is None:
            self.use(saving=False)
            assert self._call is not None
        for place, order in self._orders:
            tensors[place] = tensors[place].permute(order)
        if self._seeded:
            tensors.append(draw_seed())
        arrays = self._call(residents, tensors)
        if self._checks:
            count = len(arrays) - len(self._checks)
            arrays, holds = arrays[:count], [owned(self._device, one) for one in arrays[count:]]
            raise_failed_checks(
                (check.kind, check.text, bool(one)) for check, one in zip(self._checks, holds, strict=True)
            )
        count = len(self.traced.created)
        created = [
            shown(self._device, array, spec) for array, spec in zip(arrays[:count], self._specs, strict=False)
        ]
        results = [owned(self._device, array) for array in arrays[count:]]
        for place, layout in self._layouts.items():
            if place < count:
                created[place] = created[place][0], layout.of(created[place][1])
            else:
                results[place - count] = layout.of(results[place - count])
        return created, results

    def use(self, *, saving: bool) -> None:
        """From now on, run the program compiled for little memory if ``saving``, or else for speed."""
        executable = self._compiled(saving)
        self._call = executable.resident_call(self._state, self._updates)
        self._specs = executable.outputs[len(self._updates) :]

    def saves(self) -> bool:
        """Whether a compile for little memory noticeably reduces the memory of intermediate values."""
        fast = self._compiled(False).memory
        values = fast.get("intermediate", 0)
        if values < _SMALL * fast.get("arguments", 0):
            return False
        return self._compiled(True).memory.get("intermediate", 0) < (1 - _SMALL) * values

    def excess(self) -> float:
        """How many times as much memory the program for speed takes as the step in eager PyTorch."""
        values = self._compiled(False).memory.get("intermediate", 0)
        return (values + self._live.arguments) / max(sum(self._live), 1)

    def settle(self) -> None:
        """Drop the module and the executables that are not in use. Nothing can be compiled afterwards."""
        self._executables.clear()
        self._module = b""

    def _compiled(self, saving: bool) -> LoadedProgram:
        if saving not in self._executables:
            started = time.perf_counter()
            options = CompileOptions(updates=self._updates, save_memory=saving or None)
            self._executables[saving] = self._engine.compile(
                self._module, options=options, input_names=self._names
            )
            self.record.compile_s += time.perf_counter() - started
        return self._executables[saving]
