"""State in the engine's memory: which tensors show it, and which arrays are there now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..backend.layouts import inverse, memory_order
from ..errors import TrainingError
from ..runtime.residents import Resident, reside
from ..torch_internals.dynamo import TensorGuards

_address = torch.Tensor.data_ptr


class Residence:
    """The tensors of a step's state, moved into the engine's memory and kept there.

    A tensor remains the same object; only its data moves to other memory, once. If it gets other data later
    (``model.to``, ``tensor.data = …``), it moves again.
    """

    def __init__(self, engine: Any) -> None:
        gpu = getattr(engine, "torch_device", None)
        if engine.name != "pjrt" or not (engine.device.shares_host_memory or gpu):
            raise TrainingError(
                f"the engine {engine.name} on {engine.platform} cannot update PyTorch's memory in place",
                hint='train on the CPU engine: config.engine = "pjrt", config.device = "cpu"; or on a GPU '
                "with a build of PyTorch that has it",
            )
        self._place = gpu or torch.device("cpu")
        self.engine = engine
        self._known: dict[int, tuple[Resident, torch.Tensor]] = {}
        self._addresses: list[int] = []
        self._guards: Any = None
        self.residents: list[Resident] = []
        """The residents of the tensors that :meth:`take` was last called with, in the same order."""

    def holds(self, tensors: Sequence[torch.Tensor]) -> bool:
        """Whether ``tensors`` are the ones that are in place, and their forms have not changed."""
        return (
            self._guards is not None
            and list(map(_address, tensors)) == self._addresses
            and bool(self._guards.check(*tensors))
        )

    def take(self, tensors: Sequence[torch.Tensor]) -> None:
        """Move those of ``tensors`` that are not in the engine's memory yet, and forget all other tensors."""
        for tensor in tensors:
            found = self._known.get(id(tensor))
            if found is None or found[0].address != tensor.data_ptr():
                self._move(tensor)
        self._known = {id(tensor): self._known[id(tensor)] for tensor in tensors}
        self.residents = [self._known[id(tensor)][0] for tensor in tensors]
        self._addresses = list(map(_address, tensors))
        self._guards = TensorGuards(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None)

    def add(self, resident: Resident, tensor: torch.Tensor) -> None:
        """Add new state, which was created in the engine's memory."""
        self._known[id(tensor)] = resident, tensor

    def _move(self, tensor: torch.Tensor) -> None:
        if tensor.device != self._place or tensor.layout is not torch.strided:
            raise TrainingError(
                f"a tensor of the training state is {tensor.layout} on {tensor.device}",
                hint=f"keep the model on {self._place} in PyTorch, with dense parameters"
                + ("" if self._place.type == "cpu" else ", and the optimizer's counters: capturable=True"),
            )
        order = memory_order(tensor)
        axes = tuple(range(tensor.dim())) if order is None else order
        resident, shown = reside(self.engine.device, tensor.detach().permute(axes))
        tensor.data = shown.permute(inverse(axes))
        self.add(resident, tensor)
