"""The memory and the kernels of the test device: one fallback to the CPU, and autocast.

A tensor of the device is a plain tensor on a storage of the device, whose pointer is that of a storage on
the CPU. An operator gets CPU tensors over the same bytes, so that writing in place, views and ``out=`` need
nothing of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

NAME = "testdev"
KERNELS: Counter[str] = Counter()
"""How often each operator ran on the device. A test in which none ran has only tested the CPU."""

aten = torch.ops.aten
_CPU = torch.device("cpu")
_CPU_KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
_AUTOCAST_KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)
_libraries: list[torch.library.Library] = []


class Memory:
    """Bytes allocated on the device, as an allocator would count them."""

    allocated = 0
    peak = 0

    def __init__(self, nbytes: int) -> None:
        self._nbytes = nbytes
        Memory.allocated += nbytes
        Memory.peak = max(Memory.peak, Memory.allocated)

    def __del__(self) -> None:
        Memory.allocated -= self._nbytes


def _on_device(host: torch.UntypedStorage) -> torch.UntypedStorage:
    """A storage of the device on the bytes of a storage of the CPU, which lives as long."""
    made = torch._C._construct_storage_from_data_pointer(
        host.data_ptr(), torch.device(NAME, 0), host.nbytes()
    )
    made.host, made.memory = host, Memory(host.nbytes())
    return made


def _on_host(storage: torch.UntypedStorage) -> torch.UntypedStorage:
    """Return the CPU storage that holds the bytes of a storage of the device."""
    host = getattr(storage, "host", None)
    if host is not None:
        return host
    if storage.nbytes() == 0:
        storage.host = torch.UntypedStorage(0)
        return storage.host
    # PyTorch made it from the pointer of one of our storages, which outlives it (as storage._write_file does)
    return torch._C._construct_storage_from_data_pointer(storage.data_ptr(), _CPU, storage.nbytes())


class _Call:
    """One operator's call: turns tensors of the device into tensors of the CPU, and back."""

    def __init__(self) -> None:
        self._storages: dict[int, torch.UntypedStorage] = {}
        self._inference: dict[int, bool] = {}
        self._lowered: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def lower(self, value: Any) -> Any:
        if isinstance(value, torch.device):
            return _CPU if value.type == NAME else value
        if not isinstance(value, torch.Tensor) or value.device.type != NAME:
            return value
        storage = value.untyped_storage()
        host = _on_host(storage)
        self._storages[host._cdata] = storage
        self._inference[host._cdata] = value.is_inference()
        lowered = torch.empty(0, dtype=value.dtype).set_(
            host, value.storage_offset(), value.shape, value.stride()
        )
        self._lowered[id(lowered)] = lowered, value
        return lowered

    def lift(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) in self._lowered:
            return self._lowered[id(value)][1]
        host = value.untyped_storage()._cdata
        # in inference mode a view of an ordinary tensor is an ordinary tensor
        with torch.inference_mode(self._inference.get(host, torch.is_inference_mode_enabled())):
            return self._place(torch._C._acc.create_empty_tensor((0,), value.dtype), value)

    def take_over_resized(self) -> None:
        """Apply what ``out=`` and ``resize_`` did to a tensor's shape or memory to the device's tensor."""
        for lowered, value in self._lowered.values():
            same_layout = lowered.shape == value.shape and lowered.stride() == value.stride()
            if not same_layout or lowered.data_ptr() != value.data_ptr():
                self._place(value, lowered)

    def _place(self, tensor: torch.Tensor, lowered: torch.Tensor) -> torch.Tensor:
        host = lowered.untyped_storage()
        storage = self._storages.get(host._cdata)
        if storage is None or storage.data_ptr() != host.data_ptr() or storage.nbytes() != host.nbytes():
            storage = self._storages[host._cdata] = _on_device(host)
        set_ = aten.set_.source_Storage_storage_offset
        return set_.redispatch(
            _CPU_KEYS, tensor, storage, lowered.storage_offset(), lowered.shape, lowered.stride()
        )


def _run(operator: Any, *args: Any, **kwargs: Any) -> Any:
    """Run an operator's CPU kernel on tensors of the device."""
    KERNELS[str(operator)] += 1
    if any(isinstance(value, torch.UntypedStorage) for value in args):  # set_: nothing is computed
        return operator.redispatch(_CPU_KEYS, *args, **kwargs)
    call = _Call()
    args, kwargs = pytree.tree_map(call.lower, (args, kwargs))
    result = operator(*args, **kwargs)
    call.take_over_resized()
    lifted = pytree.tree_map(call.lift, result)
    return list(lifted) if isinstance(result, list) else lifted


def _copy_from(source: torch.Tensor, destination: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    call = _Call()
    KERNELS["aten._copy_from"] += 1
    call.lower(destination).copy_(call.lower(source), non_blocking)
    return destination


def _record_stream(tensor: torch.Tensor, stream: torch.Stream) -> None:
    """Do nothing: there is one queue, so no other one can use the memory."""


def _convolution(*args: Any) -> Any:
    return _run(aten.convolution.default, *args)


def _convolution_backward(
    gradient: torch.Tensor,
    input: torch.Tensor,
    weight: torch.Tensor,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
    output_mask: Any,
) -> Any:
    bias = weight.shape[1] * groups if transposed else weight.shape[0]
    settings = (stride, padding, dilation, transposed, output_padding, groups, output_mask)
    return _run(aten.convolution_backward.default, gradient, input, weight, [bias], *settings)


_KERNELS: dict[str, Callable[..., Any]] = {
    "_copy_from": _copy_from,
    "record_stream": _record_stream,
    "convolution_overrideable": _convolution,
    "convolution_backward_overrideable": _convolution_backward,
}

# As in ATen's autocast_mode.h for the CPU.
_LOWER_PRECISION = (
    "addmm",
    "baddbmm",
    "bmm",
    "conv1d",
    "conv2d",
    "linear",
    "matmul",
    "mm",
    "scaled_dot_product_attention",
)
_FLOAT32 = ("binary_cross_entropy_with_logits", "cross_entropy_loss", "mse_loss", "nll_loss")


def _autocast_kernel(operator: Any, dtype: Callable[[], torch.dtype]) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        wanted = dtype()

        def cast(value: Any) -> Any:
            floating = isinstance(value, torch.Tensor) and value.is_floating_point()
            return value.to(wanted) if floating and value.dtype != torch.float64 else value

        with torch._C._ExcludeDispatchKeyGuard(_AUTOCAST_KEYS):
            args, kwargs = pytree.tree_map(cast, (args, kwargs))
            return operator(*args, **kwargs)

    return kernel


def _autocast_kernels() -> Iterator[tuple[str, Callable[..., Any]]]:
    def lower_precision() -> torch.dtype:
        return torch.get_autocast_dtype(NAME)

    for names, dtype in ((_LOWER_PRECISION, lower_precision), (_FLOAT32, lambda: torch.float32)):
        for name in names:
            for overload in getattr(aten, name).overloads():
                if "out" not in overload.split("_"):
                    operator = getattr(getattr(aten, name), overload)
                    yield operator.name(), _autocast_kernel(operator, dtype)


def _new_storage(cls: type, *args: Any, device: Any = None, **kwargs: Any) -> torch.UntypedStorage:
    """``torch.UntypedStorage(n, device="testdev")``: PyTorch has no allocator for the device to ask."""
    if device is None or torch.device(device).type != NAME:
        placed = {} if device is None else {"device": device}
        return torch._C.StorageBase.__new__(cls, *args, **placed, **kwargs)
    return _on_device(torch._C.StorageBase.__new__(cls, *args, **kwargs))


def register_kernels() -> None:
    """Register the fallback, the few kernels of its own and autocast."""
    anything = torch.library.Library("_", "IMPL")
    anything.fallback(_run, "PrivateUse1")
    anything.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    ours = torch.library.Library("aten", "IMPL")
    for name, kernel in _KERNELS.items():
        ours.impl(name, kernel, "PrivateUse1")
    for name, kernel in _autocast_kernels():
        ours.impl(name.removeprefix("aten::"), kernel, "AutocastPrivateUse1")
    _libraries.extend((anything, ours))
    torch.UntypedStorage.__new__ = _new_storage
