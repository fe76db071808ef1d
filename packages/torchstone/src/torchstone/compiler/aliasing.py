"""Refuses models whose results depend on how tensors lie in memory, and names the line.

A program takes its inputs as independent values, so it cannot express that a mutation of one
tensor changes another. PyTorch would fail later, with a message about its internals.
PyTorch's functional form of a program has two more limits. It loses the shape of a tensor when
another tensor in the same memory is resized. And it closes the gaps that a tensor has in memory
when all elements of the tensor are written, so that strides no longer fit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import GraphModule, Node

from .. import hlo
from ..errors import CaptureError
from ..lowering.aten.strided import leaves_no_gaps
from ..overlap import overlap
from ..torch_internals import pytree
from ..torch_internals.caches import caches_as_trees
from ..torch_internals.operators import HigherOrderOperator, OpOverload, schema_of
from ..torch_internals.tensors import memory_identity
from .graphs import bind_schema, flattened, is_strided_read, location_text, shape_of, writes


@caches_as_trees()
def check_example_aliasing(program: ExportedProgram) -> None:
    """Raise :class:`CaptureError` if ``program`` mutates an example input that shares memory with another."""
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


def check_written_constants(program: ExportedProgram) -> None:
    """Raise :class:`CaptureError` if ``program`` writes into a tensor that is not an input or state of it."""
    constants = {
        spec.arg.name: spec.target
        for spec in program.graph_signature.input_specs
        if spec.kind is InputKind.CONSTANT_TENSOR
    }
    writers = _writers(program.graph_module) if constants else {}
    for name, target in constants.items():
        if name in writers:
            writer = writers[name]
            known = "" if "lifted_tensor" in str(target) else f" in the attribute {target}"
            raise CaptureError(
                f"{writer.target} at {location_text(writer) or 'an unknown source line'} writes into a"
                f" tensor{known} that is neither an input, a buffer nor a parameter",
                hint="register the tensor as a buffer of the model, or pass it as an input",
            )


def check_shared_state(program: ExportedProgram) -> None:
    """Raise :class:`CaptureError` if ``program`` writes into state that shares memory with other state."""
    held = {**program.constants, **program.state_dict}
    state = {
        spec.arg.name: (f"the {_STATE[spec.kind]} {spec.target}", held[spec.target])
        for spec in program.graph_signature.input_specs
        if spec.kind in _STATE and isinstance(held.get(spec.target), torch.Tensor)
    }
    writers = _writers(program.graph_module) if state else {}
    for written in state.keys() & writers.keys():
        label, tensor = state[written]
        for other, (known, shared) in state.items():
            if other != written and overlap(tensor, shared):
                place = location_text(writers[written])
                at = f" at {place}" if place else ""
                raise CaptureError(
                    f"the forward pass writes into {label}{at}, which shares memory with {known}:"
                    " a program keeps each of them as a value of its own",
                    hint="register a copy, made with clone(), or only one and compute the other from it",
                )


_STATE = {
    InputKind.PARAMETER: "parameter",
    InputKind.BUFFER: "buffer",
    InputKind.CONSTANT_TENSOR: "attribute",
}


def _writers(module: GraphModule) -> dict[str, Node]:
    """Map each input that a captured graph writes into, also through views, to the first call that writes."""
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
                    elif origin is not None and not _is_copy(node, value):
                        origins[node] = origin
        elif (inner := _wrapped(module, node)) is not None:  # a block with torch.no_grad() or autocast
            part, operands = inner
            inside = _writers(part)
            for placeholder, operand in zip(part.graph.find_nodes(op="placeholder"), operands, strict=True):
                origin = origins.get(operand) if isinstance(operand, Node) else None
                if origin is not None and placeholder.name in inside:
                    writers.setdefault(origin.name, inside[placeholder.name])
        elif node.op == "call_function":  # getitem of the views that split returns
            origin = origins.get(node.all_input_nodes[0]) if node.all_input_nodes else None
            if origin is not None:
                origins[node] = origin
    return writers


def _is_copy(node: Node, source: Node) -> bool:
    """Whether a call that returns ``source`` or a copy of it, such as ``to``, has made a copy."""
    result, given = node.meta.get("val"), source.meta.get("val")
    if not (isinstance(result, torch.Tensor) and isinstance(given, torch.Tensor)):
        return False
    if schema_of(node.target).name == "aten::to":  # its metadata is not that of the tensor which it returns
        return result.dtype != given.dtype
    memory = _storage(source)
    return memory is not None and _storage(node) not in (memory, None)


def _wrapped(module: GraphModule, node: Node) -> tuple[GraphModule, Sequence[Any]] | None:
    """Return the graph that ``node`` runs once, with its operands; None if it is another kind of node."""
    if not (isinstance(node.target, HigherOrderOperator) and node.target.name().startswith("wrap_with_")):
        return None
    for place, argument in enumerate(node.args):
        part = getattr(module, str(argument.target), None) if isinstance(argument, Node) else None
        if isinstance(part, GraphModule):
            return part, node.args[place + 1 :]
    return None


def check_resized_outputs(program: ExportedProgram) -> None:
    """Raise :class:`CaptureError` if ``out=`` resizes a tensor that shares memory with another value.

    Branches and bodies of control flow need no check: TorchDynamo captures them and refuses such calls.
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
    """Return the memory of a node's tensor; None if it has none of its own, as inside ``vmap``."""
    value = node.meta.get("val")
    return memory_identity(value) if isinstance(value, torch.Tensor) else None


def check_strided_reads(program: ExportedProgram) -> None:
    """Raise :class:`CaptureError` if ``as_strided`` reads a tensor with gaps after a write to all of it.

    It also raises if a view that ``as_strided`` made before the write is read after it, unless the write
    went through that view.
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
    """Raise :class:`CaptureError` if a symbol stands for a stride of memory with gaps.

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
    """Map each memory to the first node whose tensor lies in it."""
    bases: dict[int, Node] = {}
    for node in program.graph.nodes:
        storage = _storage(node)
        if storage is not None:
            bases.setdefault(storage, node)
    return bases


def _fills_with_gaps(node: Node, base: Node) -> bool:
    """Whether ``node`` has all elements of ``base``, and ``base`` has gaps in memory."""
    value, whole = node.meta["val"], base.meta["val"]
    return hlo.same_dim(value.numel(), whole.numel()) and not leaves_no_gaps(whole)


def _written(node: Node) -> Iterator[Node]:
    """Yield the tensors that a call writes into."""
    if not isinstance(node.target, OpOverload) or not writes(node.target):
        return
    given = bind_schema(node.target, node.args, node.kwargs)
    for argument in schema_of(node.target).arguments:
        if argument.is_write:
            yield from (one for one in flattened(given.get(argument.name)) if isinstance(one, Node))


def _resized(node: Node) -> Iterator[Node]:
    """Yield the ``out=`` tensors of a call whose shape the call changes."""
    if not isinstance(node.target, OpOverload) or not writes(node.target):
        return
    given = bind_schema(node.target, node.args, node.kwargs)
    names = [argument.name for argument in schema_of(node.target).arguments if argument.is_out]
    outputs = [one for name in names for one in flattened(given[name])]
    for output, result in zip(outputs, flattened(node.meta["val"]), strict=False):
        if not hlo.same_shape(shape_of(output.meta["val"]), shape_of(result)):
            yield output
