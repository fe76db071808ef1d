"""``torch.testdev``: devices, streams, memory and random numbers of the test device."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from .kernels import Memory

TOTAL_MEMORY = 1 << 30


@dataclass(frozen=True)
class DeviceProperties:
    """The properties that the device reports."""

    name: str
    total_memory: int


class _device:
    """``torch.testdev.device(0)``: there is one device, so nothing changes."""

    def __init__(self, device: Any) -> None:
        self.idx = 0

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: Any) -> None:
        pass


class BackendModule:
    """The module that PyTorch and the redirection find as ``torch.<name>``."""

    device = _device
    Stream, Event = torch.Stream, torch.Event

    def __init__(self, name: str) -> None:
        self._name = name

    # Devices

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return True

    def _is_in_bad_fork(self) -> bool:
        return False

    def device_count(self) -> int:
        return 1

    def current_device(self) -> int:
        return 0

    def set_device(self, device: Any) -> None:
        index = torch.device(self._name, device) if isinstance(device, int) else torch.device(device)
        if index.index not in (None, 0):
            raise RuntimeError(f"{self._name} has one device, and no {index}")

    def get_device_name(self, device: Any = None) -> str:
        return "Torchstone test device"

    def get_device_properties(self, device: Any = None) -> DeviceProperties:
        return DeviceProperties(self.get_device_name(), TOTAL_MEMORY)

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.float16, torch.bfloat16]

    # Streams: PyTorch's own for any accelerator, of which this one has no work pending

    def synchronize(self, device: Any = None) -> None:
        pass

    def current_stream(self, device: Any = None) -> torch.Stream:
        return torch.accelerator.current_stream()

    def set_stream(self, stream: torch.Stream) -> None:
        torch.accelerator.set_stream(stream)

    def stream(self, stream: torch.Stream | None) -> Any:
        return nullcontext() if stream is None else stream

    # Memory

    def empty_cache(self) -> None:
        pass

    def mem_get_info(self, device: Any = None) -> tuple[int, int]:
        return TOTAL_MEMORY - Memory.allocated, TOTAL_MEMORY

    def memory_allocated(self, device: Any = None) -> int:
        return Memory.allocated

    def max_memory_allocated(self, device: Any = None) -> int:
        return Memory.peak

    def reset_peak_memory_stats(self, device: Any = None) -> None:
        Memory.peak = Memory.allocated

    # Random numbers: those of the CPU's generator

    def manual_seed(self, seed: int) -> None:
        torch.default_generator.manual_seed(seed)

    manual_seed_all = manual_seed

    def initial_seed(self) -> int:
        return torch.default_generator.initial_seed()

    def get_rng_state(self, device: Any = None) -> torch.Tensor:
        return torch.default_generator.get_state()

    def set_rng_state(self, state: torch.Tensor, device: Any = None) -> None:
        torch.default_generator.set_state(state)
