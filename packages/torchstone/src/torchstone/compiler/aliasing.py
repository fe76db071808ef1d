"""What a program cannot say of how values lie in memory: refused, with the line.

A program takes its inputs as independent values; what one tensor's mutation makes of
another cannot be said in it. PyTorch would fail later, in words about its own insides.
Nor does PyTorch's functional form of a program know which shape a tensor keeps when another
one in the same memory is resized. It also closes the gaps that a tensor has in memory when
all of its elements are written, so that strides no longer fit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from .. import hlo
from ..errors import CaptureError
from ..lowering.aten.strided import leaves_no_gaps
from ..overlap import overlap
from ..torch_internals import pytree
from ..torch_internals.caches import caches_as_trees
from ..torch_internals.operators import OpOverload, schema_of
from ..torch_internals.tensors import storage_identity
from .graphs import bind_schema, flattened, is_strided_read, location_text, shape_of, writes


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


def check_resized_outputs(program: ExportedProgram) -> None:
    """Raises :class:`CaptureError` where ``out=`` resizes a tensor that shares memory with another value.

    Branches and bodies of control flow need no check: TorchDynamo, which captures them, refuses such calls.
    """
    resized = {node: outputs for node in program.graph.nodes if (outputs := list(_resized(node)))}
    if not resized:
        return
    memory: defaultdict[int | None, set[Node]] = defaultdict(set)
    for node in program.graph.nodes:
        for output in resized.get(node, ()):
            if memory[_storage(output)] - {output}:
                place = location_text(node) or "an unknown source line"
                raise CaptureError(
                    f"{node.target} at {place} resizes its out= tensor, which shares memory with another one",
                    hint="give out= a tensor that has the shape of the result",
                )
        storage = _storage(node)
        if storage is not None and not writes(node.target):
            memory[storage].add(node)


def _storage(node: Node) -> int | None:
    """The memory of a node's tensor; None where it has none of its own, as one of ``vmap``."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return None
    try:
        return storage_identity(value.untyped_storage())
    except NotImplementedError:
        return None


def check_strided_reads(program: ExportedProgram) -> None:
    """Raises :class:`CaptureError` where ``as_strided`` reads a tensor with gaps after all of it is written.

    Views that ``as_strided`` made before count too, unless the write goes through them.
    """
    if not any(map(is_strided_read, program.graph.nodes)):
        return
    bases = _bases(program)
    written: set[int] = set()
    strided: defaultdict[int, set[Node]] = defaultdict(set)
    stale: set[Node] = set()
    for node in program.graph.nodes:
        storage = _storage(node)
        reads = is_strided_read(node)
        reader = next((one for one in node.all_input_nodes if one in stale), None)
        if reads and storage in written:
            reader = node
        if reader is not None:
            place = location_text(reader) or "an unknown source line"
            raise CaptureError(
                f"{reader.target} at {place} reads by strides what has gaps in memory, and the program"
                " has written into it",
                hint="write into a contiguous copy of it, or read it by indices",
            )
        for one in _written(node):
            memory = _storage(one)
            if memory is not None and _fills_with_gaps(one, bases[memory]):
                written.add(memory)
                stale |= strided[memory] - {one}
        if storage is not None and (reads or strided[storage].intersection(node.all_input_nodes)):
            strided[storage].add(node)


def check_strides(program: ExportedProgram) -> None:
    """Raises :class:`CaptureError` where a symbol stands for a stride of memory with gaps.

    A program takes values, which have no strides, and such a stride does not follow from sizes.
    """
    strides = [node for node in program.graph.nodes if node.target is torch.ops.aten.sym_stride.int]
    bases = _bases(program) if strides else {}
    for node in strides:
        storage = _storage(node.args[0])
        base = None if storage is None else bases[storage]
        if base is not None and not leaves_no_gaps(base.meta["val"]):
            place = location_text(node) or "an unknown source line"
            raise CaptureError(
                f"{base.name}.stride() at {place} is a number that a program does not know: the memory of its"
                " example has gaps",
                hint="export with a contiguous example, or compute with sizes",
            )


def _bases(program: ExportedProgram) -> dict[int, Node]:
    """The first tensor in each memory."""
    bases: dict[int, Node] = {}
    for node in program.graph.nodes:
        storage = _storage(node)
        if storage is not None:
            bases.setdefault(storage, node)
    return bases


def _fills_with_gaps(node: Node, base: Node) -> bool:
    """Whether ``node`` shows all elements of ``base``, and these leave gaps in memory."""
    value, whole = node.meta["val"], base.meta["val"]
    return hlo.same_dim(value.numel(), whole.numel()) and not leaves_no_gaps(whole)


def _written(node: Node) -> Iterator[Node]:
    """The tensors that a call writes into."""
    if not isinstance(node.target, OpOverload) or not writes(node.target):
        return
    given = bind_schema(node.target, node.args, node.kwargs)
    for argument in schema_of(node.target).arguments:
        if argument.is_write:
            yield from (one for one in flattened(given.get(argument.name)) if isinstance(one, Node))


def _resized(node: Node) -> Iterator[Node]:
    """The ``out=`` tensors of a call that have another shape before it."""
    if not isinstance(node.target, OpOverload) or not writes(node.target):
        return
    given = bind_schema(node.target, node.args, node.kwargs)
    names = [argument.name for argument in schema_of(node.target).arguments if argument.is_out]
    outputs = [one for name in names for one in flattened(given[name])]
    for output, result in zip(outputs, flattened(node.meta["val"]), strict=False):
        if not hlo.same_shape(shape_of(output.meta["val"]), shape_of(result)):
            yield output
