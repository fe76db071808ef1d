"""Calls programs with tensors in the memory of the GPU that runs them, without copies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..torch_internals.tensors import version_of
from . import streams
from .buffers import Buffer, BufferSpec
from .torch_bridge import to_torch
from .torch_calls import Argument, TorchCall


class GpuCall(TorchCall):
    """A :class:`TorchCall` for a GPU whose memory PyTorch can use too.

    Results at the positions in ``left`` are tensors on the GPU, the others on the CPU. A static argument on
    the GPU is imported again only when its address changes, because an import shows every later write. A
    static argument on the CPU is also imported again when its version counter changes.
    """

    def __call__(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """See :class:`TorchCall`."""
        streams.engine_waits(self._device)
        return super().__call__(tensors)

    def _argument(self, spec: BufferSpec, position: int, *, consumed: bool) -> Argument:
        return GpuArgument(spec, position, self._device, consumed=consumed)

    def _identities(self, tensors: Sequence[torch.Tensor]) -> list[Any]:
        static = self._pick_static(tensors)
        return [(one.data_ptr(), one.is_cpu and version_of(one)) for one in static]

    def _kept(
        self, tensors: Sequence[torch.Tensor], arrays: Sequence[Any]
    ) -> tuple[dict[int, Any], list[Any]]:
        kept, storages = super()._kept(tensors, arrays)
        here = [position for position, one in enumerate(tensors) if streams.is_here(self._device, one)]
        if here and all(position in kept for position in here):
            kept.pop(here[0])  # the program waits for PyTorch only if the call imports an array on the GPU
        return kept, storages

    def _exported(self, results: Sequence[Any]) -> list[torch.Tensor]:
        if results:  # later writes by PyTorch to the arguments must wait for the program
            streams.torch_waits(self._device, results[0])
        made = [
            Buffer(array, spec.shape, spec.dtype, self._device, aliased=False)
            for array, spec in zip(results, self._outputs, strict=True)
        ]
        return [to_torch(one, on_device=position in self._left) for position, one in enumerate(made)]


class GpuArgument(Argument):
    """An argument of a :class:`GpuCall`, on the GPU or on the CPU."""

    def _has_memory(self, tensor: torch.Tensor) -> bool:
        return tensor.is_cpu or tensor.device == streams.torch_device(self.device)

    def alias(self, tensor: torch.Tensor) -> Any:
        if streams.is_here(self.device, tensor):
            return streams.taken(self.device, tensor)
        return self.convert(tensor).array
