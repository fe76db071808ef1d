"""Reads FX graphs: source lines, shapes and dtypes of nodes, outputs, tensors as NumPy arrays."""

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
"""The prefix by which Dynamo names the module that it traces."""
_NOT_THE_USERS = (
    str(Path(torch.__file__).parent) + os.sep,
    str(Path(__file__).parents[1]) + os.sep,
    "<eval_with_key>",  # the code of a subgraph
)


def user_location(node: Node) -> tuple[str, int] | None:
    """Return ``(file, line)`` of the innermost frame of the user's code that made ``node``."""
    trace = node.meta.get("stack_trace") or ""
    frames = [(m["file"], int(m["line"])) for m in _FRAME.finditer(trace)]
    outside = [frame for frame in frames if is_users_file(frame[0])]
    chosen = outside or frames
    return chosen[-1] if chosen else None


def first_line(module: GraphModule) -> str:
    """Return `` at file:line`` of the first operator with a known source line; empty if there is none."""
    places = (user_location(node) for node in module.graph.nodes if node.op not in ("placeholder", "output"))
    return next((f" at {file}:{line}" for file, line in filter(None, places)), "")


def is_users_file(file: str) -> bool:
    """Whether ``file`` belongs neither to PyTorch nor to Torchstone."""
    return not file.startswith(_NOT_THE_USERS)


def location_text(node: Node) -> str | None:
    found = user_location(node)
    return f"{found[0]}:{found[1]}" if found else None


def origin_text(node: Node) -> str:
    """Return module, operator and name of a call, as in ``layers.0.fc/aten.addmm.default/addmm_1``.

    These are the names of locations in a program. Engines keep them, so that they tell which call runs.
    """
    return f"{module_path(node)}/{node.target}/{node.name}"


def module_path(node: Node) -> str:
    """Return the innermost module whose forward made ``node`` or what it differentiates; empty if unknown."""
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
    """Return a tensor's shape; symbolic sizes that PyTorch knows to be constant become ints."""
    return tuple(map(plain_number, tensor.shape))


def plain_number(number: Any) -> Any:
    """Return ``number``, as an int if it is a symbolic integer that PyTorch knows to be constant."""
    constant = isinstance(number, torch.SymInt) and number.node.expr.is_Integer
    return int(number.node.expr) if constant else number


def operator_nodes(module: GraphModule) -> Iterable[Node]:
    """Yield the nodes of ``module`` and its subgraphs that call an operator."""
    for sub in module.modules():
        if isinstance(sub, GraphModule):
            yield from (node for node in sub.graph.nodes if node.op == "call_function")


def writes(target: Any) -> bool:
    """Whether an operator writes into an argument: in-place and ``out=`` forms do."""
    return isinstance(target, OpOverload) and bool(schema_of(target).is_mutable)


def settle_inplace_views(module: GraphModule) -> None:
    """Turn ``squeeze_`` and other in-place views into views, for graphs that were not functionalized.

    Such an operator changes no values, so later uses of its tensor become uses of the view.
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
    """Make ``as_strided`` of a view read the tensor behind it, since it may read memory outside the view."""
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
    """Whether a node's value is a view that has the same values in the same memory as its first operand."""
    target = node.target
    return isinstance(target, OpOverload) and target.is_view and schema_of(target).name not in _OTHER_VALUES


def is_inplace_view(target: Any) -> bool:
    """Whether an operator, like ``aten.squeeze_.dim``, changes the shape of its tensor but no values."""
    return isinstance(target, OpOverload) and torch.Tag.inplace_view in target.tags


def _as_view(target: Any) -> OpOverload | None:
    """Return ``aten.squeeze.dim`` for ``aten.squeeze_.dim``; None for other than in-place views."""
    if not is_inplace_view(target):
        return None
    packet = getattr(torch.ops.aten, schema_of(target).name.removeprefix("aten::").removesuffix("_"), None)
    return getattr(packet, overload_name(target), None)


def output_node(module: GraphModule) -> Node:
    return next(node for node in reversed(module.graph.nodes) if node.op == "output")


def output_values(module: GraphModule) -> list[Any]:
    """Return the outputs of a graph: a flat list of nodes and constants."""
    return list(output_node(module).args[0])  # type: ignore[arg-type]


def flattened(value: Any) -> list[Any]:
    if isinstance(value, (tuple, list)):
        return [leaf for item in value for leaf in flattened(item)]
    return [value]


def is_symbolic_number(node: Node) -> bool:
    """Whether a node is arithmetic on sizes, whose value is known symbolically."""
    value = node.meta.get("val")
    return isinstance(
        value, (int, float, bool, torch.SymInt, torch.SymFloat, torch.SymBool)
    ) and not isinstance(node.target, HigherOrderOperator)


def constant_of(tensor: torch.Tensor) -> Value:
    """Return a real tensor as a constant of the module, outside AOTAutograd's mode for fake tensors."""
    with without_modes():
        values = to_numpy(tensor)
    return hlo.constant(values, dtypes.from_torch(tensor.dtype))


def to_numpy(tensor: torch.Tensor) -> Any:
    """Return a tensor's values as a NumPy array of the same dtype (ml_dtypes for bfloat16 and float8)."""
    if is_zero_tensor(tensor):  # autograd's zeros without memory
        tensor = torch.zeros(tensor.shape, dtype=tensor.dtype)
    plain = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    dtype = dtypes.from_torch(plain.dtype)
    if dtype in dtypes.FLOAT8 or dtype is dtypes.BFLOAT16:
        return plain.view(torch.uint8 if dtype.bits == 8 else torch.int16).numpy().view(dtype.numpy)
    return plain.numpy()


def bind(lowering: Lowering, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return a call's arguments by the lowering's names for them, with defaults filled in."""
    given = bind_schema(lowering.overload, args, kwargs)
    return {lowering.respelled.get(name, name): value for name, value in given.items()}


def bind_schema(overload: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return a call's arguments by schema name, with defaults filled in; needs no lowering."""
    schema = schema_of(overload).arguments
    given = dict(zip((argument.name for argument in schema), args, strict=False))
    given.update(kwargs)
    for argument in schema:
        if argument.name not in given and argument.has_default_value():
            given[argument.name] = argument.default_value
    return given


def fake_arguments(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a call's arguments with each node replaced by its fake tensor or number."""
    return dict(map_arg(dict(given), lambda node: node.meta.get("val")))
