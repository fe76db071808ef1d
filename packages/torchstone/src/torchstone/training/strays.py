"""Refuses tensors that a step uses unseen by its trace: they would not be trained, or would never change."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch
from torch.fx import GraphModule

from ..errors import CaptureError
from ..torch_internals.fake import FakeTensor
from ..torch_internals.tensors import leaves_of_gradients
from .state import State

Tensor = torch.Tensor


def refuse_strays_among_leaves(loss: Tensor, state: State, outer: Mapping[int, str]) -> None:
    """Raise CaptureError if the loss depends on a parameter itself, and not on its tensor in the trace.

    ``outer`` has the names of other tensors that code refers to, by identity. In eager PyTorch, those that
    require a gradient would get one.
    """
    names = {id(entry.tensor): entry.name for entry in state.entries}
    leaves = leaves_of_gradients(loss)
    strays = sorted(names[id(leaf)] for leaf in leaves if id(leaf) in names)
    if strays:
        raise _stray(strays[0])
    if others := sorted(outer[id(leaf)] for leaf in leaves if id(leaf) in outer):
        raise CaptureError(
            f"the loss has a gradient for {others[0]}, which neither the model nor the optimizer has"
            + (f" (and for {len(others) - 1} more)" if len(others) > 1 else ""),
            hint="freeze it with requires_grad_(False), on the tensor or on its module, or use it under "
            "torch.no_grad(); to train it, make it part of the model",
        )


def refuse_strays_among_constants(module: GraphModule, state: State, outer: Collection[int]) -> None:
    """Raise CaptureError if a tensor of the state or of the trace became a constant of the graph.

    ``outer`` has the identities of tensors that code refers to: their parameters may be constants.
    """
    places = {entry.tensor.untyped_storage().data_ptr(): entry.name for entry in state.entries}
    for node in module.graph.find_nodes(op="get_attr"):
        constant = getattr(module, str(node.target))
        if not isinstance(constant, Tensor) or not constant.numel():
            continue
        fake = isinstance(constant, FakeTensor)
        name = None if fake else places.get(constant.untyped_storage().data_ptr())
        if name is not None:
            raise _stray(name)
        if fake or (isinstance(constant, torch.nn.Parameter) and id(constant) not in outer):
            raise CaptureError(
                f"the step makes a tensor of shape {list(constant.shape)}, and its trace does not see how",
                hint="make modules, parameters, and subclasses of tensors before the step",
            )


def _stray(name: str) -> CaptureError:
    return CaptureError(
        f"the step uses {name} in a way that its trace does not see, so it would not be trained",
        hint="where it goes into torch.autograd.Function, a torch.jit function or torch.func, read it from "
        "its module (self.weight), not from a list or a closure",
    )
