"""Example inputs that share memory: refused where the program writes into one of them.

A program takes its inputs as independent values; what one tensor's mutation makes of
another cannot be said in it. PyTorch would fail later, in words about its own insides.
"""

from __future__ import annotations

from itertools import combinations

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from ..errors import CaptureError
from ..overlap import overlap
from ..torch_internals import pytree
from ..torch_internals.caches import caches_as_trees
from ..torch_internals.operators import OpOverload, schema_of
from .graphs import bind_schema, flattened, location_text


@caches_as_trees()
def check_example_aliasing(program: ExportedProgram) -> None:
    """Raises :class:`CaptureError` where ``program`` mutates an example input that shares memory."""
    if program.example_inputs is None:
        return
    examples = [
        (name, value)
        for name, value in zip(
            program.graph_signature.user_inputs, pytree.tree_leaves(program.example_inputs), strict=False
        )
        if isinstance(value, torch.Tensor)
    ]
    shared = [(one, other) for (one, a), (other, b) in combinations(examples, 2) if overlap(a, b)]
    if not shared:
        return
    writers = _writers(program.graph_module)
    for one, other in shared:
        writer = writers.get(one) or writers.get(other)
        if writer is not None:
            raise CaptureError(
                f"the example inputs {one} and {other} share memory, and {writer.target} at"
                f" {location_text(writer) or 'an unknown source line'} writes into it:"
                " a program takes its inputs as independent values",
                hint="export with copies (input.clone()); calls need inputs of their own memory too",
            )


def _writers(module: GraphModule) -> dict[str, Node]:
    """Inputs that a captured graph writes into, directly or through views, and the first call that does."""
    origins: dict[Node, Node] = {}
    writers: dict[str, Node] = {}
    for node in module.graph.nodes:
        if node.op == "placeholder":
            origins[node] = node
        elif isinstance(node.target, OpOverload):
            given = bind_schema(node.target, node.args, node.kwargs)
            for argument in schema_of(node.target).arguments:
                if argument.alias_info is None:
                    continue
                for value in flattened(given.get(argument.name)):
                    origin = origins.get(value) if isinstance(value, Node) else None
                    if origin is not None and argument.alias_info.is_write:
                        writers.setdefault(origin.name, node)
                    elif origin is not None:
                        origins[node] = origin
        elif node.op == "call_function":  # getitem of the views that split returns
            origin = origins.get(node.all_input_nodes[0]) if node.all_input_nodes else None
            if origin is not None:
                origins[node] = origin
    return writers
