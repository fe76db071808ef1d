"""What is done to the graph of a traced step before it is compiled, or before eager PyTorch runs it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from ..compiler.normalize import decompositions
from ..compiler.operators.mending import ASK_AUTOGRAD
from ..errors import CaptureError
from ..torch_internals.dynamo import aot_autograd
from ..torch_internals.operators import OpOverload, namespace
from .batch import shared_write
from .writes import arguments_written

aten = namespace("aten")


def read_undetached(module: GraphModule) -> None:
    """Remove ``detach`` from a graph that runs without recording gradients, except from its outputs."""
    for node in module.graph.find_nodes(op="call_function", target=aten.detach.default):
        node.replace_all_uses_with(node.args[0], delete_user_cb=lambda user: user.op != "output")
    module.graph.eliminate_dead_code()
    module.recompile()


def erase_profiling(module: GraphModule) -> None:
    """Erase the marks of ``record_function``, which compute nothing; optimizers set some."""
    for node in reversed(module.graph.nodes):
        if isinstance(node.target, OpOverload) and node.target.namespace == "profiler":
            module.graph.erase_node(node)


def _refuse_written_constants(module: GraphModule) -> None:
    """Raise CaptureError if the graph writes into a tensor that is not among its arguments."""
    for node in module.graph.find_nodes(op="get_attr"):
        for user in node.users:
            if any(argument is node for argument in arguments_written(user.target, user.args)):
                constant = getattr(module, str(node.target))
                raise CaptureError(
                    f"the step writes into a tensor {constant.dtype}{list(constant.shape)} that its code "
                    "refers to, and its program has it as a constant",
                    hint="make it a buffer of the model (register_buffer), or call a module that updates its "
                    "own buffers, such as a teacher with batch norm, in eval mode",
                )


def functional(traced: GraphModule, fakes: Sequence[torch.Tensor]) -> GraphModule:
    """Return ``traced`` as a graph that writes only into its arguments, of operators that have a lowering."""
    _refuse_written_constants(traced)
    graphs: list[GraphModule] = []

    def keep(module: GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
        graphs.append(module)
        return module.forward

    own = [*traced.named_parameters(remove_duplicate=False), *traced.named_buffers(remove_duplicate=False)]
    for name, constant in own:  # AOTAutograd would make them arguments
        delattr(traced, name)
        setattr(traced, name, constant.detach())
    table = decompositions(training=True)
    for overload in ASK_AUTOGRAD:
        del table[overload]
    with torch.no_grad():
        aot_autograd(
            fw_compiler=keep,
            inference_compiler=keep,
            decompositions=table,
            keep_inference_input_mutations=True,
        )(traced, list(fakes))
    if len(graphs[0].graph.find_nodes(op="placeholder")) < len(fakes):
        raise shared_write()
    return graphs[0]
