"""Calls operators on padded tensors: the table of rules, and the operators that need no rule.

Padding is at the end of a dimension, and its values are arbitrary. Most operators compute each element of
their result from the same place of their operands, and are called as they are. The others need rules:
those that reduce, sort, multiply matrices, read or write by indices, or join tensors. Any other operator
raises :class:`~.sizes.NoForm`, unless none of its tensors is padded.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.traceback import set_current_meta

from ...torch_internals.operators import HigherOrderOperator, OpOverload, schema_of
from ...torch_internals.pytree import tree_map
from ..graphs import bind_schema, is_symbolic_number, output_values
from .sizes import NoForm, Trace, given_values, is_plain_call, is_unknown_size, unknown_in

Tensor = torch.Tensor
Rule = Callable[[Trace, Node, Mapping[str, Any]], Any]

RULES: dict[str, Rule] = {}
"""Rules by operator name, without ``aten::`` and overload. A rule gets its arguments by name, as nodes."""


def rule(names: str) -> Callable[[Rule], Rule]:
    """Register a function as the rule for these operators; ``names`` are separated by spaces."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names.split(), function))
        return function

    return register


def call(trace: Trace, node: Node) -> Any:
    """Return the result of the call of ``node`` on padded tensors."""
    if node.target is operator.getitem:
        return trace.values[node.args[0]][node.args[1]]  # type: ignore[index]
    if isinstance(node.target, HigherOrderOperator):
        return call_with_subgraphs(trace, node)
    if not is_plain_call(node):
        raise NoForm("it has no form for sizes that depend on values")
    target: Any = node.target
    name = schema_of(target).name.removeprefix("aten::")
    if name in RULES:
        result = RULES[name](trace, node, bind_schema(target, node.args, node.kwargs))
    elif not any(unknown_in(one.meta.get("val")) for one in (node, *node.all_input_nodes)):
        return called(trace, node)
    elif _is_plain(node, name):
        result = called(trace, node)
    else:
        raise NoForm("it has no form for sizes that depend on values")
    _check_shapes(trace, node, result)
    return result


def call_with_subgraphs(trace: Trace, node: Node) -> Any:
    """Return the result of an operator such as ``cond``, whose operands and results must have no padding."""
    if any(unknown_in(one.meta.get("val")) for one in (node, *node.all_input_nodes)):
        raise NoForm("sizes or numbers that depend on values enter or leave its subgraphs")

    def subgraph(module: GraphModule) -> Any:
        graph = module.graph
        if not any(unknown_in(one.meta.get("val")) for one in graph.nodes):
            return module

        def run(*given: Any) -> Any:
            inner = Trace(trace.ranges)
            inputs = dict(zip(graph.find_nodes(op="placeholder"), given, strict=True))
            run_nodes(inner, module, inputs)
            if inner.checks:
                raise NoForm(f"one of its subgraphs has to check a size: {inner.checks[0].text}")
            return given_values(inner, tuple(output_values(module)))

        return run

    def callable_of(value: Any) -> Any:
        return subgraph(value) if isinstance(value, GraphModule) else value

    args, kwargs = (tree_map(callable_of, given_values(trace, one)) for one in (node.args, dict(node.kwargs)))
    return node.target(*args, **kwargs)  # type: ignore[operator]


def run_nodes(trace: Trace, module: GraphModule, inputs: Mapping[Node, Any]) -> None:
    """Call each operator of a graph on padded tensors."""
    for node, value in inputs.items():
        trace.values[node] = value
        for size in value.shape if isinstance(value, Tensor) else ():
            if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
                trace.sizes.setdefault(size.node.expr, size)
    for node in module.graph.nodes:
        if node.op == "get_attr":
            trace.values[node] = operator.attrgetter(str(node.target))(module)
        if node.op != "call_function" or is_known_number(node):
            continue
        with set_current_meta(node):
            try:
                trace.values[node] = call(trace, node)
            except NoForm as error:
                raise NoForm(str(error.args[0]), node) from error
            except Exception as error:  # PyTorch may raise anything for this call
                said = next(iter(str(error).splitlines()), "")
                raise NoForm(f"its padded form fails: {type(error).__name__}: {said}", node) from error


def is_known_number(node: Node) -> bool:
    """Whether the node computes a number from sizes, so that PyTorch's symbols give its value."""
    return is_symbolic_number(node) and node.target is not torch.ops.aten._local_scalar_dense.default


def is_operator(node: Node, name: str) -> bool:
    """Whether the node calls an overload of that operator of ATen."""
    return isinstance(node.target, OpOverload) and schema_of(node.target).name == f"aten::{name}"


def is_unknown_number(node: Node) -> bool:
    """Whether a node is a number that depends on values."""
    value = node.meta.get("val")
    return isinstance(value, (torch.SymInt, torch.SymFloat)) and bool(unknown_in(value))


def called(trace: Trace, node: Node, **replaced: Any) -> Any:
    """Call the operator of ``node`` on the padded values of its arguments, except those in ``replaced``."""
    target: Any = node.target
    given = bind_schema(target, node.args, node.kwargs)
    kinds = {one.name: str(one.type) for one in schema_of(target).arguments}
    made = {
        name: replaced[name] if name in replaced else _argument(trace, value, kinds[name])
        for name, value in given.items()
    }
    keywords = {one.name for one in schema_of(target).arguments if one.kwarg_only}
    positional = [value for name, value in made.items() if name not in keywords]
    # If a count takes the place of a number, another overload must take it.
    counts = any("number" in kinds[name] and isinstance(value, Tensor) for name, value in made.items())
    function = target.overloadpacket if counts else target
    try:
        result = function(*positional, **{name: made[name] for name in made if name in keywords})
    except (RuntimeError, TypeError) as error:
        if counts and "match any schema" in str(error):  # no overload takes a tensor there
            raise NoForm("it takes a number that depends on values") from error
        raise NoForm(f"its padded form fails: {str(error).splitlines()[0]}") from error
    expected = node.meta.get("val")
    if isinstance(result, Tensor) and isinstance(expected, Tensor) and result.dtype != expected.dtype:
        return result.to(expected.dtype)
    return result


def _argument(trace: Trace, value: Any, kind: str) -> Any:
    if isinstance(value, Node) and is_unknown_number(value):
        if kind != "Tensor" and "number" not in kind:
            raise NoForm("it takes a number that depends on values")
        return trace.number(value)
    if isinstance(value, (list, tuple)):
        return [_argument(trace, one, "int") for one in value]
    return given_values(trace, value)


def _check_shapes(trace: Trace, node: Node, result: Any) -> None:
    """Raise :class:`NoForm` if the padded result does not have the padded sizes of PyTorch's shape."""
    pairs = [(result, node.meta.get("val"))]
    if isinstance(result, (tuple, list)):
        pairs = list(zip(result, node.meta["val"], strict=True))
    for made, expected in pairs:
        if isinstance(made, Tensor) and isinstance(expected, Tensor):
            sizes = zip(made.shape, trace.shape(expected), strict=False)
            if made.ndim != expected.ndim or any(
                isinstance(x, int) and isinstance(y, int) and x != y for x, y in sizes
            ):
                raise NoForm(f"its padded result has the shape {list(made.shape)}")


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_PLAIN = _names("""
    _to_copy alias clone detach floor_divide lift_fresh_copy expand permute squeeze stack t transpose
    unsqueeze tril triu
    cummax cummin cumprod cumsum logcumsumexp empty_like full_like ones_like zeros_like
    bernoulli rand_like randn_like
""")
_BY_ROWS = _names("""
    convolution avg_pool2d max_pool2d_with_indices _adaptive_avg_pool2d upsample_nearest2d upsample_bilinear2d
    _native_batch_norm_legit_no_training pixel_shuffle grid_sampler_2d
""")
"""Operators whose result rows depend on the same row of the first operand, and on all of the others."""


def _is_plain(node: Node, name: str) -> bool:
    if torch.Tag.pointwise in node.target.tags or name in _PLAIN:  # type: ignore[union-attr]
        return True
    if name not in _BY_ROWS:
        return False
    first, *others = node.all_input_nodes
    values = [node.meta["val"]] if isinstance(node.meta["val"], Tensor) else node.meta["val"]
    by_rows = all(_rows_only(value) for value in (first.meta["val"], *values))
    return by_rows and not any(_is_padded(one.meta.get("val")) for one in others)


def _is_padded(value: Any) -> bool:
    return isinstance(value, Tensor) and any(is_unknown_size(size) for size in value.shape)


def _rows_only(value: Any) -> bool:
    return isinstance(value, Tensor) and not any(map(is_unknown_size, value.shape[1:]))
