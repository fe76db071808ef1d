"""PyTorch's own expansion of one call of a composite-implicit operator.

Such an operator (``einsum``, ``cross_entropy_loss``, …) has no kernel: PyTorch expands it
wherever it differentiates. An export does not expand those that have a lowering. The
lowering may ask for the expansion, as the decomposition of its composite.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch.fx import GraphModule, Node

from ..lowering import Lowering, load
from ..torch_internals import pytree
from ..torch_internals.dispatch import is_composite_implicit
from ..torch_internals.operators import OpOverload, schema_of
from ..torch_internals.tracing import aot_export_joint_simple
from .graphs import bind_schema, fake_arguments
from .normalize import decompositions
from .operators.tracing import mended_operators
from .overrides import overriding

_KEPT = "torchstone_expansion"


def expansion_of(node: Node, lowering: Lowering) -> GraphModule:
    """Return the call of ``node`` as a functional graph of its tensor arguments, in the schema's order.

    The graph calls only operators with a lowering, as far as decompositions reach. It is traced once
    and kept in the node's metadata.
    """
    if _KEPT not in node.meta:
        node.meta[_KEPT] = _traced(node, lowering)
    graph: GraphModule = node.meta[_KEPT]
    return graph


def _traced(node: Node, lowering: Lowering) -> GraphModule:
    overload = lowering.overload
    call, fakes = _expanded_call(overload, fake_arguments(bind_schema(overload, node.args, node.kwargs)))
    dtypes = [result.dtype for result in pytree.tree_leaves(node.meta["val"])]

    def computed(*tensors: torch.Tensor) -> list[torch.Tensor]:
        results = call(*(map(_widened, tensors) if "expand_wide" in lowering.special else tensors))
        # Copies: a result may be a view of an argument, which the tracer refuses to return.
        return [result.to(dtype, copy=True) for result, dtype in zip(results, dtypes, strict=True)]

    return traced(computed, fakes, expanded=overload)


def traced(
    function: Callable[..., list[torch.Tensor]],
    fakes: Sequence[torch.Tensor],
    *,
    expanded: OpOverload | None = None,
) -> GraphModule:
    """Trace a function of tensors to a functional graph; ``expanded`` is expanded although it has a lowering.

    The function must return no views of its arguments or of other results. The graph calls only
    operators with a lowering, as far as decompositions reach.
    """
    inner = {kept: keep for kept, keep in _kept_whole().items() if kept is not expanded}
    with mended_operators(), overriding(inner):
        module = aot_export_joint_simple(
            function, tuple(fakes), trace_joint=False, decompositions=decompositions(training=True)
        )
    assert isinstance(module, GraphModule)
    module.graph.eliminate_dead_code()
    return module


def _widened(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def _expanded_call(
    overload: OpOverload, given: dict[str, Any]
) -> tuple[Callable[..., list[torch.Tensor]], list[torch.Tensor]]:
    """Return the expansion of ``overload`` as a function of its tensor arguments, and these arguments."""
    schema = [argument for argument in schema_of(overload).arguments if argument.name in given]
    leaves, tree = pytree.tree_flatten([given[argument.name] for argument in schema])
    places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def call(*tensors: torch.Tensor) -> list[torch.Tensor]:
        filled = list(leaves)
        for place, tensor in zip(places, tensors, strict=True):
            filled[place] = tensor
        arguments = list(zip(schema, pytree.tree_unflatten(filled, tree), strict=True))
        results: list[torch.Tensor] = pytree.tree_leaves(
            overload.decompose(
                *(value for argument, value in arguments if not argument.kwarg_only),
                **{argument.name: value for argument, value in arguments if argument.kwarg_only},
            )
        )
        return results

    return call, [leaves[place] for place in places]


@cache
def _kept_whole() -> dict[OpOverload, Callable[..., Any]]:
    """Return overrides that tell PyTorch not to expand the composite-implicit operators with a lowering."""

    def keep(*_: Any, **__: Any) -> Any:
        return NotImplemented

    return {overload: keep for overload in load().overloads() if is_composite_implicit(overload)}
