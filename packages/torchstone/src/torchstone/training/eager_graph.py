"""Makes the graph of a step faster in eager PyTorch, without changing a bit of its results.

A compiler does all this anyway. Eager PyTorch runs a graph as it is, operator by operator.
"""

from __future__ import annotations

from operator import getitem

import torch
from torch.fx import GraphModule, Node

from ..compiler.operators.onednn import run_kernel, run_kernel_backward
from ..lowering.own import own
from ..torch_internals import pytree
from ..torch_internals.operators import OpOverload, namespace, overload_name, schema_of
from ..torch_internals.tensors import memory_identity
from .writes import arguments_written

aten = namespace("aten")

_OF_EXPANDED = (aten.div.Scalar, aten.mul.Scalar)
_COMMUTATIVE = (aten.add.Tensor, aten.mul.Tensor)
_MAKES_MEMORY = (
    aten.convolution.default,
    aten.convolution_backward.default,
    aten.mm.default,
    aten.bmm.default,
    aten.addmm.default,
    aten.baddbmm.default,
    aten._native_batch_norm_legit.default,
    aten.native_batch_norm.default,
    aten.native_batch_norm_backward.default,
    aten.native_group_norm.default,
    aten.native_group_norm_backward.default,
    aten.native_layer_norm.default,
    aten.native_layer_norm_backward.default,
    aten._softmax.default,
    aten._softmax_backward_data.default,
    aten.max_pool2d_with_indices_backward.default,
    aten.avg_pool2d.default,
    aten.avg_pool2d_backward.default,
    aten.sum.dim_IntList,
    aten.mean.dim,
    aten.embedding.default,
    aten.cat.default,
)
"""Besides operators that work element by element: kernels whose results share no memory with anything."""
_FILLED = (aten.zeros.default, aten.ones.default, aten.full.default)
_CALLED_DIRECTLY = {
    own.onednn_lstm.default: run_kernel,
    own.onednn_lstm_backward.default: run_kernel_backward,
}
"""Operators in Python, and the functions that they call. A call through PyTorch's dispatcher takes longer."""


def make_faster(module: GraphModule) -> None:
    """Change the graph of ``module``, whose nodes have their results as fake tensors in ``meta["val"]``.

    A graph without these results stays as it is.
    """
    if all("val" in node.meta for node in module.graph.nodes if node.op == "call_function"):
        _read_powers_of_one(module)
        _compute_before_expanding(module)
        _share_filled_tensors(module)
        _select_in_the_order_of_the_kernel(module)
        _reuse_memory(module)
        for node in module.graph.nodes:
            node.target = _CALLED_DIRECTLY.get(node.target, node.target)
        module.recompile()


def saves_for_gradients(module: GraphModule) -> bool:
    """Whether a faster graph is to run with gradients enabled: then its kernels for LSTMs save workspaces.

    They turn gradients on by themselves otherwise, in each call.
    """
    return any(node.target is run_kernel for node in module.graph.nodes)


def _read_powers_of_one(module: GraphModule) -> None:
    """Read ``x`` in place of ``x ** 1``, which the gradient of a square contains."""
    written = _written(module)
    for node in module.graph.find_nodes(op="call_function", target=aten.pow.Tensor_Scalar):
        base, exponent = node.args
        alike = node.meta["val"].dtype == base.meta["val"].dtype
        if exponent != 1 or not alike or written & {*_memory(base), *_memory(node)}:
            continue
        if all(user.op != "output" for user in node.users):
            node.replace_all_uses_with(base)
            module.graph.erase_node(node)


def _compute_before_expanding(module: GraphModule) -> None:
    """Multiply and divide a number before it is expanded; the gradient of a mean contains such a division.

    The result has other strides. So this is done only if all users compute element by element, with a tensor
    that decides the strides of what they return.
    """
    written, graph = _written(module), module.graph
    for target in _OF_EXPANDED:
        for node in graph.find_nodes(op="call_function", target=target):
            expand = node.args[0]
            if expand.target is not aten.expand.default or written & {*_memory(expand), *_memory(node)}:
                continue
            if not all(_decides_strides(user, node) for user in node.users):
                continue
            with graph.inserting_before(node):
                small = graph.call_function(target, (expand.args[0], *node.args[1:]))
                small.meta["val"] = target(expand.args[0].meta["val"], *node.args[1:])
                large = graph.call_function(expand.target, (small, *expand.args[1:]))
                large.meta["val"] = expand.target(small.meta["val"], *expand.args[1:])
            node.replace_all_uses_with(large)
            graph.erase_node(node)
    graph.eliminate_dead_code()


def _decides_strides(user: Node, operand: Node) -> bool:
    """Whether ``user`` works element by element, with another operand that has the layout of its result."""
    return _elementwise(user) is not None and any(
        _same_layout(one, user) for one in user.all_input_nodes if one is not operand
    )


def _share_filled_tensors(module: GraphModule) -> None:
    """Make each tensor of zeros, ones or another number only once, unless it is written or returned."""
    written, graph = _written(module), module.graph
    returned = {memory for one in graph.output_node().all_input_nodes for memory in _memory(one)}
    first: dict[str, Node] = {}
    for target in _FILLED:
        for node in graph.find_nodes(op="call_function", target=target):
            if node.all_input_nodes or (written | returned) & _memory(node):
                continue
            other = first.setdefault(str((target, node.args, node.kwargs)), node)
            if other is not node:
                node.replace_all_uses_with(other)
                graph.erase_node(node)


def _select_in_the_order_of_the_kernel(module: GraphModule) -> None:
    """Make the gradient of a selected step of an LSTM in the order of its kernel, which would copy it."""
    graph = module.graph
    for node in graph.find_nodes(op="call_function", target=aten.select_backward.default):
        users = list(node.users)
        if len(users) != 1 or users[0].target is not aten.transpose.int:
            continue
        transposed, (grad, sizes, dim, index) = users[0], node.args
        if not all(_copies_gradient(user, transposed) for user in transposed.users):
            continue
        axes = list(range(len(sizes)))
        one, other = transposed.args[1:]
        axes[one], axes[other] = axes[other], axes[one]
        place = axes.index(dim % len(axes))
        if axes[:place] + axes[place + 1 :] != sorted({*axes} - {axes[place]}):
            continue  # the gradient itself would have to be transposed
        with graph.inserting_before(node):
            made = graph.call_function(node.target, (grad, [sizes[axis] for axis in axes], place, index))
        made.meta["val"] = node.target(grad.meta["val"], *made.args[1:])
        transposed.replace_all_uses_with(made)
        graph.erase_node(transposed)
        graph.erase_node(node)


def _copies_gradient(user: Node, gradient: Node) -> bool:
    """Whether ``user`` reads ``gradient`` only after it has copied it into the order of the oneDNN kernel."""
    return user.target is own.onednn_lstm_backward.default and gradient not in {
        one for part in user.args[1:] for one in pytree.tree_leaves(part)
    }


def _reuse_memory(module: GraphModule) -> None:
    """Let elementwise operators write their results into operands that nothing reads later."""
    nodes = list(module.graph.nodes)
    places = {node: place for place, node in enumerate(nodes)}
    last: dict[int, int] = {}
    """Where the graph reads or writes each memory for the last time."""
    for node in nodes:
        for one in (node, *node.all_input_nodes):
            last.update(dict.fromkeys(_memory(one), places[node]))
    made = {node for node in nodes if _is_made(node)}
    for node in nodes:
        for position in (0, 1) if _is_commutative(node) else (0,):
            writing = _writing(node, position)
            if writing is None or node.args[position] not in made:
                continue
            operand, overload, name = node.args[position], *writing
            (memory,) = _memory(operand)
            others = {one for other in node.all_input_nodes if other is not operand for one in _memory(other)}
            if memory in others or last[memory] > places[node]:
                continue
            node.target = overload
            if name:
                node.kwargs = {**node.kwargs, name: operand}
            elif position:
                node.args = tuple(reversed(node.args))
            break


def _is_commutative(node: Node) -> bool:
    return node.target in _COMMUTATIVE and not node.kwargs and len(node.args) == 2


def _writing(node: Node, position: int) -> tuple[OpOverload, str] | None:
    """Return the overload that writes its result into an operand, and the name of that argument, if any.

    Returns None if ``node`` has no such overload, or if its result does not fit into the operand.
    """
    operator = _elementwise(node)
    if operator is None or schema_of(operator).is_mutable or len(node.args) <= position:
        return None
    operand = node.args[position]
    if not isinstance(operand, Node) or not _same_layout(operand, node):
        return None
    name = schema_of(operator).name.removeprefix("aten::")
    in_place = getattr(getattr(aten, f"{name}_"), overload_name(operator))
    if isinstance(in_place, OpOverload):
        return in_place, ""
    of_gradient = getattr(aten, name).grad_input
    return (of_gradient, "grad_input") if isinstance(of_gradient, OpOverload) and position == 0 else None


def _is_made(node: Node) -> bool:
    """Whether the graph makes the tensor, which then is all that is in its memory."""
    made = node.args[0] if node.target is getitem else node
    if not isinstance(made, Node) or made.op != "call_function":
        return False
    if made.target in _MAKES_MEMORY:
        return True
    return _elementwise(made) is not None and _memory(made).isdisjoint(
        memory for one in made.all_input_nodes for memory in _memory(one)
    )


def _elementwise(node: Node) -> OpOverload | None:
    """Return the operator that ``node`` calls if it works element by element, else None."""
    operator = node.target
    return operator if isinstance(operator, OpOverload) and torch.Tag.pointwise in operator.tags else None


def _same_layout(one: Node, other: Node) -> bool:
    x, y = one.meta.get("val"), other.meta.get("val")
    if not isinstance(x, torch.Tensor) or not isinstance(y, torch.Tensor):
        return False
    if x.layout != torch.strided or y.layout != torch.strided or x.device != y.device:
        return False
    return x.dtype == y.dtype and x.shape == y.shape and x.stride() == y.stride()


def _written(module: GraphModule) -> set[int]:
    """Return the memories that the graph writes."""
    found: set[int] = set()
    for node in module.graph.nodes:
        for one in arguments_written(node.target, node.args):
            found |= _memory(one) if isinstance(one, Node) else set()
    return found


def _memory(node: Node) -> set[int]:
    """Return numbers that identify the memories of the results of ``node``."""
    leaves = pytree.tree_leaves(node.meta.get("val"))
    found = {memory_identity(one) for one in leaves if isinstance(one, torch.Tensor)}
    return {memory for memory in found if memory is not None}
