"""A fully supported static graph, compiled to one program and called with torch tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.fx import GraphModule

from .. import dtypes, hlo
from ..compiler.checks import Check, add_checks
from ..compiler.graphs import operator_nodes, output_values, shape_of
from ..compiler.lower import lower_graph
from ..compiler.support import needs_seed
from ..errors import UnsupportedLayout, raise_failed_checks
from ..runtime import get_engine
from ..torch_internals.tensors import has_tangent
from .layouts import arrange_layouts
from .options import Options
from .outputs import Outputs
from .records import GraphRecord


class CompiledPart:
    """A fully supported static graph on an engine, and how to put its ``outputs`` together.

    Outputs that are inputs, constants, None or views need no engine; dense inputs and
    outputs in another memory order are not copied.
    """

    def __init__(
        self,
        module: GraphModule,
        outputs: Outputs,
        options: Options,
        record: GraphRecord,
        static: Iterable[int] = (),
    ) -> None:
        record.count(node.target for node in operator_nodes(module))
        self._outputs = outputs
        self._orders = arrange_layouts(module)
        placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
        self._tensors = [
            i for i, node in enumerate(placeholders) if isinstance(node.meta["val"], torch.Tensor)
        ]
        self._seeded = needs_seed(module)
        self._changes_inputs = (
            bool(self._orders.by_tensor) or self._seeded or len(self._tensors) < len(placeholders)
        )
        self._call: Callable[[list[Any]], list[Any]] | None = None
        self._checks: list[Check] = []
        if options.check_indices or options.check_values:
            module, self._checks = add_checks(
                module, indices=options.check_indices, values=options.check_values
            )
        if not output_values(module):
            return
        arguments = [
            hlo.Argument(shape_of(node.meta["val"]), dtypes.from_torch(node.meta["val"].dtype), node.name)
            for node in (placeholders[i] for i in self._tensors)
        ]
        if self._seeded:
            arguments.append(hlo.Argument((2,), dtypes.UINT64, "seed"))
        built = lower_graph(module, arguments, name=record.kind, seed=self._seeded)
        engine = get_engine(options.engine, options.device)
        executable = engine.compile(
            built.serialize(hlo.resolve_version("current")), input_names=[a.name for a in arguments]
        )
        kept = {position for position in static if self._orders.inputs.get(position) is None}
        # Dynamo's guards compare parameters and buffers with those of the trace, all but their addresses.
        self._call = executable.torch_call(
            [i for i, position in enumerate(self._tensors) if position in kept], guarded=True
        )

    def __call__(self, inputs: list[Any]) -> list[Any]:
        if self._call is not None and has_tangent(inputs):
            raise UnsupportedLayout(
                "compiled code got a tensor with a tangent, and a compiled program computes no tangents",
                hint="use torch.func.jvp, which runs the function in eager PyTorch, or differentiate "
                "inside the compiled function",
            )
        tensors = [inputs[i] for i in self._tensors] if self._changes_inputs else inputs
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
        for position, layout in self._orders.outputs:
            results[position] = layout.of(results[position])
        return results if self._outputs.plain else self._outputs.assemble(inputs, results)


def draw_seed() -> torch.Tensor:
    """uint64 ``[2]`` from PyTorch's default generator, so that ``torch.manual_seed`` repeats it."""
    bits = torch.randint(-(1 << 63), (1 << 63) - 1, (2,), dtype=torch.int64, device="cpu")
    return bits.view(torch.uint64)
