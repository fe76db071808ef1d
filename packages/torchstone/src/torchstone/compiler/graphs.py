"""Reading FX graphs: source lines, shapes and dtypes of nodes, outputs, tensors as NumPy arrays."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from .. import dtypes, hlo
from ..hlo import Value
from ..lowering import Lowering, Spec
from ..torch_internals.dispatch import without_modes
from ..torch_internals.operators import HigherOrderOperator, OpOverload, overload_name, schema_of
from ..torch_internals.tensors import is_zero_tensor

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')
_ROOT = re.compile(r"^[LG]\['\w+'\]\.?")
"""How Dynamo names the module that it traces."""
_NOT_THE_USERS = (
    str(Path(torch.__file__).parent) + os.sep,
    str(Path(__file__).parents[1]) + os.sep,
    "<eval_with_key>",  # the code of a subgraph
)


def user_location(node: Node) -> tuple[str, int] | None:
    """``(file, line)`` of the innermost frame of the user's code that made ``node``."""
    trace = node.meta.get("stack_trace") or ""
    frames = [(m["file"], int(m["line"])) for m in _FRAME.finditer(trace)]
    outside = [frame for frame in frames if is_users_file(frame[0])]
    chosen = outside or frames
    return chosen[-1] if chosen else None


def first_line(module: GraphModule) -> str:
    """`` at file:line`` of the first operator in the user's code; empty where the graph knows none."""
    places = (user_location(node) for node in module.graph.nodes if node.op not in ("placeholder", "output"))
    return next((f" at {file}:{line}" for file, line in filter(None, places)), "")


def is_users_file(file: str) -> bool:
    """Whether code of ``file`` is neither PyTorch's nor Torchstone's."""
    return not file.startswith(_NOT_THE_USERS)


def location_text(node: Node) -> str | None:
    found = user_location(node)
    return f"{found[0]}:{found[1]}" if found else None


def origin_text(node: Node) -> str:
    """``layers.0.fc/aten.addmm.default/addmm_1``: the module, the operator and the name of a call.

    The names of a program's locations, which engines keep, so that what runs can be told from it.
    """
    return f"{module_path(node)}/{node.target}/{node.name}"


def module_path(node: Node) -> str:
    """The innermost module whose forward made ``node`` or what ``node`` differentiates; empty if unknown."""
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack")
    if not stack:
        return ""
    path, _ = list(stack.values())[-1]
    return _ROOT.sub("", path)


def spec_of(value: Any) -> Any:
    """:class:`Spec` of a fake tensor; a tuple of them for several; None for anything else."""
    if isinstance(value, torch.Tensor):
        return Spec(shape_of(value), dtypes.from_torch(value.dtype))
    if isinstance(value, (tuple, list)):
        return tuple(map(spec_of, value))
    return None


def shape_of(tensor: torch.Tensor) -> hlo.Shape:
    """A tensor's shape; symbolic sizes that PyTorch knows to be constant become ints."""
    return tuple(map(plain_number, tensor.shape))


def plain_number(number: Any) -> Any:
    """A symbolic integer that PyTorch knows to be constant as an int; everything else as it is."""
    constant = isinstance(number, torch.SymInt) and number.node.expr.is_Integer
    return int(number.node.expr) if constant else number


def operator_nodes(module: GraphModule) -> Iterable[Node]:
    """The nodes of ``module`` and its subgraphs that call an operator."""
    for sub in module.modules():
        if isinstance(sub, GraphModule):
            yield from (node for node in sub.graph.nodes if node.op == "call_function")


def writes(target: Any) -> bool:
    """Whether an operator is in place or ``out=``."""
    return isinstance(target, OpOverload) and bool(schema_of(target).is_mutable)


def settle_inplace_views(module: GraphModule) -> None:
    """Turn ``squeeze_`` and other views in place into views, for graphs that were not functionalized.

    Such an operator changes no values: later uses of its tensor become uses of the view.
    """
    seen: set[Node] = set()
    for node in module.graph.nodes:
        view = _as_view(node.target) if node.op == "call_function" else None
        if view is not None:
            node.target = view
            earlier = {node, *seen}
            node.args[0].replace_all_uses_with(node, delete_user_cb=lambda user, e=earlier: user not in e)
        seen.add(node)
    module.recompile()


def widen_strided_reads(module: GraphModule) -> None:
    """Let ``as_strided`` of a view read what the view shows: it may address more of that memory."""
    for node in module.graph.nodes:
        if not is_strided_read(node):
            continue
        view = base = node.args[0]
        while _shows_memory(base) and base.args[0].meta["val"].dtype == view.meta["val"].dtype:
            base = base.args[0]
        size, stride, *given = node.args[1:]
        if base is not view:
            offset = given[0] if given and given[0] is not None else view.meta["val"].storage_offset()
            node.args = (base, size, stride, offset)
    module.recompile()


def is_strided_read(node: Node) -> bool:
    """Whether a node reads a tensor's memory by strides of its own."""
    return node.op == "call_function" and node.target in _STRIDED


_STRIDED = (torch.ops.aten.as_strided.default, torch.ops.aten.as_strided_copy.default)
_OTHER_VALUES = ("aten::_conj", "aten::_neg_view")


def _shows_memory(node: Node) -> bool:
    """Whether a node's value is its first operand's memory seen in another way."""
    target = node.target
    return isinstance(target, OpOverload) and target.is_view and schema_of(target).name not in _OTHER_VALUES


def is_inplace_view(target: Any) -> bool:
    """True for ``aten.squeeze_.dim`` and others that change the shape of their tensor and no value."""
    return isinstance(target, OpOverload) and torch.Tag.inplace_view in target.tags


def _as_view(target: Any) -> OpOverload | None:
    """``aten.squeeze.dim`` for ``aten.squeeze_.dim``; None for what is not a view in place."""
    if not is_inplace_view(target):
        return None
    packet = getattr(torch.ops.aten, schema_of(target).name.removeprefix("aten::").removesuffix("_"), None)
    return getattr(packet, overload_name(target), None)


def output_node(module: GraphModule) -> Node:
    return next(node for node in reversed(module.graph.nodes) if node.op == "output")


def output_values(module: GraphModule) -> list[Any]:
    """What a graph returns: a flat list of nodes and constants."""
    return list(output_node(module).args[0])  # type: ignore[arg-type]


def flattened(value: Any) -> list[Any]:
    if isinstance(value, (tuple, list)):
        return [leaf for item in value for leaf in flattened(item)]
    return [value]


def is_symbolic_number(node: Node) -> bool:
    """True for arithmetic on sizes: its value is known symbolically."""
    value = node.meta.get("val")
    return isinstance(
        value, (int, float, bool, torch.SymInt, torch.SymFloat, torch.SymBool)
    ) and not isinstance(node.target, HigherOrderOperator)


def constant_of(tensor: torch.Tensor) -> Value:
    """A real tensor as a constant of the module; AOTAutograd's mode for fake ones is left meanwhile."""
    with without_modes():
        values = to_numpy(tensor)
    return hlo.constant(values, dtypes.from_torch(tensor.dtype))


def to_numpy(tensor: torch.Tensor) -> Any:
    """A tensor's values as a NumPy array of the same dtype (ml_dtypes for bfloat16 and float8)."""
    if is_zero_tensor(tensor):  # autograd's zeros without memory
        tensor = torch.zeros(tensor.shape, dtype=tensor.dtype)
    plain = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    dtype = dtypes.from_torch(plain.dtype)
    if dtype in dtypes.FLOAT8 or dtype is dtypes.BFLOAT16:
        return plain.view(torch.uint8 if dtype.bits == 8 else torch.int16).numpy().view(dtype.numpy)
    return plain.numpy()


def bind(lowering: Lowering, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """A call's arguments by the names that the lowering gives them, defaults filled in."""
    given = bind_schema(lowering.overload, args, kwargs)
    return {lowering.respelled.get(name, name): value for name, value in given.items()}


def bind_schema(overload: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """A call's arguments by schema name, defaults filled in; the operator need not have a lowering."""
    schema = schema_of(overload).arguments
    given = dict(zip((argument.name for argument in schema), args, strict=False))
    given.update(kwargs)
    for argument in schema:
        if argument.name not in given and argument.has_default_value():
            given[argument.name] = argument.default_value
    return given


def fake_arguments(given: Mapping[str, Any]) -> dict[str, Any]:
    """A call's arguments with fake tensors for the nodes that stand for them."""
    return dict(map_arg(dict(given), lambda node: node.meta.get("val")))
