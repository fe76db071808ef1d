"""A fully supported static graph, compiled to one program and called with torch tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from .. import hlo
from ..compiler.graphs import output_values
from ..errors import UnsupportedLayout, raise_failed_checks
from ..runtime import get_engine
from ..runtime.torch_bridge import placement_of
from ..torch_internals.tensors import has_tangent
from .passes import Region, compiling

Run = Callable[[list[Any]], list[Any]]
"""A function from the list of a graph's inputs, which it does not change, to the list of its outputs."""


class CompiledPart:
    """A region that lowers as a whole, compiled for an engine; calling it runs the program.

    Outputs that are inputs, constants, None or views need no engine. Dense inputs and
    outputs in another memory order are not copied. Inputs on devices other than the CPU and the
    engine's own are read from there, and results are moved to the devices that the graph names.
    """

    def __init__(self, region: Region, static: Iterable[int] = ()) -> None:
        options = region.options
        engine = get_engine(options.engine, options.device)
        here = getattr(engine, "torch_device", None)
        places = [value.meta["val"].device for value in output_values(region.module)]
        self._taken = [
            (position, placement_of(device).take)
            for position, device in enumerate(places)
            if device.type != "cpu" and device != here
        ]
        compiling(options.passes).run(region)
        region.record.native.update(region.survey.native)
        self._outputs, self._orders, self._checks = region.outputs, region.orders, region.checks
        placeholders = region.module.graph.find_nodes(op="placeholder")
        self._tensors = [
            i for i, node in enumerate(placeholders) if isinstance(node.meta["val"], torch.Tensor)
        ]
        self._read = [
            (position, placement_of(device).read)
            for position, i in enumerate(self._tensors)
            if (device := placeholders[i].meta["val"].device).type != "cpu" and device != here
        ]
        self._seeded = region.survey.seeded
        self._changes_inputs = (
            bool(self._orders.by_tensor or self._read)
            or self._seeded
            or len(self._tensors) < len(placeholders)
        )
        self._call: Callable[[list[Any]], list[Any]] | None = None
        if region.stablehlo is None:
            return
        executable = engine.compile(
            region.stablehlo.serialize(hlo.resolve_version("current")),
            input_names=[argument.name for argument in region.arguments],
        )
        kept = {position for position in static if self._orders.inputs.get(position) is None}
        # Dynamo's guards compare everything about parameters and buffers with the trace, except addresses.
        known = [i for i, position in enumerate(self._tensors) if position in kept]
        # Only an engine on a GPU that PyTorch uses too must know which results stay there.
        left = {"left": [i for i, device in enumerate(places) if device == here]} if here else {}
        self._call = executable.torch_call(known, guarded=True, **left)

    def __call__(self, inputs: list[Any]) -> list[Any]:
        if self._call is not None:
            refuse_tangents(inputs)
        tensors = [inputs[i] for i in self._tensors] if self._changes_inputs else inputs
        for position, read in self._read:
            tensors[position] = read(tensors[position])
        for position, order in self._orders.by_tensor:
            tensors[position] = tensors[position].permute(order)
        if self._seeded:
            tensors.append(draw_seed())
        results = self._call(tensors) if self._call is not None else []
        if self._checks:
            count = len(results) - len(self._checks)
            results, holds = results[:count], results[count:]
            raise_failed_checks(
                (check.kind, check.text, bool(one)) for check, one in zip(self._checks, holds, strict=True)
            )
        for position, take in self._taken:
            results[position] = take(results[position])
        for position, layout in self._orders.outputs:
            results[position] = layout.of(results[position])
        return results if self._outputs.plain else self._outputs.assemble(inputs, results)


def refuse_tangents(inputs: Sequence[Any]) -> None:
    """Raise :class:`UnsupportedLayout` if an input has a tangent (forward-mode differentiation)."""
    if has_tangent(inputs):
        raise UnsupportedLayout(
            "compiled code got a tensor with a tangent, and a compiled program computes no tangents",
            hint="use torch.func.jvp or jacfwd, which run the function in eager PyTorch, or differentiate "
            "inside the compiled function",
        )


def draw_seed() -> torch.Tensor:
    """Draw a uint64 ``[2]`` seed from PyTorch's default generator, so ``torch.manual_seed`` repeats it."""
    bits = torch.randint(-(1 << 63), (1 << 63) - 1, (2,), dtype=torch.int64, device="cpu")
    return bits.view(torch.uint64)
