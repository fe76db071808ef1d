"""A package of the kind that TorchDevice, torchada and transfer_to_npu are: importing it changes PyTorch.

It sends whatever code asks of CUDA to the CPU: devices are mapped where a factory, a tensor or a module takes
one, and ``torch.cuda`` answers as if there were one device.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import torch

FACTORIES = (
    *("arange", "as_tensor", "empty", "empty_like", "empty_strided", "eye", "full", "full_like", "linspace"),
    *("logspace", "ones", "ones_like", "rand", "rand_like", "randint", "randn", "randn_like", "randperm"),
    *("range", "scalar_tensor", "tensor", "tril_indices", "triu_indices", "zeros", "zeros_like"),
)
TENSOR_METHODS = ("to", "new_empty", "new_full", "new_ones", "new_tensor", "new_zeros", "pin_memory")
MODULE_METHODS = ("to", "to_empty")
_Device = torch.device


def is_cuda(value: Any) -> bool:
    return (isinstance(value, str) and value.partition(":")[0] == "cuda") or (
        isinstance(value, _Device) and value.type == "cuda"
    )


def mapped(value: Any) -> Any:
    """Return the CPU for a CUDA device, and anything else unchanged."""
    return _Device("cpu") if is_cuda(value) else value


def redirecting(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``original`` so that every CUDA device among its arguments becomes the CPU."""

    @functools.wraps(original)
    def replacement(*args: Any, **kwargs: Any) -> Any:
        return original(*map(mapped, args), **{name: mapped(value) for name, value in kwargs.items()})

    return replacement


class _DeviceType(type):
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, _Device)


class device(metaclass=_DeviceType):
    """Stands for ``torch.device``."""

    def __new__(cls, device: Any = None, index: int | None = None) -> Any:
        named = (device,) if index is None else (device, index)
        return mapped(_Device(*named))


class Generator(torch.Generator):
    """``torch.Generator`` on the CPU."""

    def __new__(cls, device: Any = None) -> Any:
        return super().__new__(cls, device=mapped(device))


class Event:
    """An event, as a point in the order of the CPU's work."""

    def __init__(
        self,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
        external: bool = False,
    ) -> None: ...

    def query(self) -> bool:
        return True

    def record(self, stream: Any = None) -> None: ...

    def synchronize(self) -> None: ...

    def wait(self, stream: Any = None) -> None: ...

    def elapsed_time(self, end_event: Any) -> float:
        return 0.0


class Stream:
    """A stream that does nothing, because work on the CPU is in order anyway."""

    def __init__(self, device: Any = None, priority: int = 0, **kwargs: Any) -> None:
        self.device, self.priority = _Device("cpu"), priority

    def query(self) -> bool:
        return True

    def synchronize(self) -> None: ...

    def wait_event(self, event: Any) -> None: ...

    def wait_stream(self, stream: Any) -> None: ...

    def record_event(self, event: Any = None) -> Any:
        return event or Event()


@contextmanager
def _nothing(stream: Any) -> Any:
    yield


def _tensor_cuda(
    self: Any, device: Any = None, non_blocking: bool = False, memory_format: Any = torch.preserve_format
) -> Any:
    return self.to(memory_format=memory_format)


def _module_cuda(self: Any, device: Any = None) -> Any:
    return self._apply(lambda tensor: tensor.cuda(device))


def _is_available() -> bool:
    return True


def _device_count() -> int:
    return 1


def _current_device() -> int:
    return 0


def _get_device_name(device: Any = None) -> str:
    return "CPU"


def _get_device_capability(device: Any = None) -> tuple[int, int]:
    return (0, 0)


def _memory(device: Any = None) -> int:
    return 0


def _memory_stats(device: Any = None) -> dict[str, Any]:
    return {"allocated_bytes.all.current": 0}


def _memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    return "no CUDA memory"


def _done(device: Any = None) -> None: ...


def _empty_cache() -> None: ...


def _is_initialized() -> bool:
    return True


def _is_bf16_supported(including_emulation: bool = True) -> bool:
    return True


def _current_stream(device: Any = None) -> Any:
    return Stream(device)


def _get_rng_state(device: Any = "cuda") -> torch.Tensor:
    return torch.get_rng_state()


CUDA: dict[str, Any] = {
    "is_available": _is_available,
    "is_initialized": _is_initialized,
    "is_bf16_supported": _is_bf16_supported,
    "device_count": _device_count,
    "current_device": _current_device,
    "get_device_name": _get_device_name,
    "get_device_capability": _get_device_capability,
    **dict.fromkeys(
        ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"), _memory
    ),
    "memory_stats": _memory_stats,
    "memory_summary": _memory_summary,
    "synchronize": _done,
    "reset_peak_memory_stats": _done,
    "empty_cache": _empty_cache,
    "get_rng_state": _get_rng_state,
    "current_stream": _current_stream,
    "default_stream": _current_stream,
    "Event": Event,
    "Stream": Stream,
    "stream": _nothing,
}


def patch() -> None:
    for name in FACTORIES:
        setattr(torch, name, redirecting(getattr(torch, name)))
    for name in TENSOR_METHODS:
        setattr(torch.Tensor, name, redirecting(getattr(torch.Tensor, name)))
    for name in MODULE_METHODS:
        setattr(torch.nn.Module, name, redirecting(getattr(torch.nn.Module, name)))
    for name, replacement in CUDA.items():
        setattr(torch.cuda, name, replacement)
    torch.Tensor.cuda = _tensor_cuda  # type: ignore[assignment]
    torch.nn.Module.cuda = _module_cuda  # type: ignore[assignment]
    torch.device = device  # type: ignore[assignment,misc]
    torch.Generator = Generator  # type: ignore[misc]


patch()
