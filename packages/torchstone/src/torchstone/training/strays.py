"""Refuses tensors that a step uses unseen by its trace: they would not be trained, or would never change."""

from __future__ import annotations

import torch
from torch.fx import GraphModule

from ..errors import CaptureError
from ..torch_internals.fake import FakeTensor
from ..torch_internals.tensors import leaves_of_gradients
from .state import State

Tensor = torch.Tensor


def refuse_strays_among_leaves(loss: Tensor, state: State) -> None:
    """Raise CaptureError if the loss depends on a parameter itself, and not on its tensor in the trace."""
    names = {id(entry.tensor): entry.name for entry in state.entries}
    strays = sorted(names[id(leaf)] for leaf in leaves_of_gradients(loss) if id(leaf) in names)
    if strays:
        raise _stray(strays[0])


def refuse_strays_among_constants(module: GraphModule, state: State) -> None:
    """Raise CaptureError if a tensor of the state or of the trace became a constant of the graph."""
    places = {entry.tensor.untyped_storage().data_ptr(): entry.name for entry in state.entries}
    for node in module.graph.find_nodes(op="get_attr"):
        constant = getattr(module, str(node.target))
        if not isinstance(constant, Tensor) or not constant.numel():
            continue
        fake = isinstance(constant, FakeTensor)
        name = None if fake else places.get(constant.untyped_storage().data_ptr())
        if name is not None:
            raise _stray(name)
        if fake or isinstance(constant, torch.nn.Parameter):
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
