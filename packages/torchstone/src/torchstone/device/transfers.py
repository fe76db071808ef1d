"""Copies between device tensors, from and to the CPU, and of single values to Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..torch_internals.operators import namespace
from . import engine
from .calls import check_device, element_of
from .fallback import host_bytes
from .operators import Operator
from .storage import DEVICE_TYPE, Box, box_in, box_of, empty_storage

aten = namespace("aten")

_copy = Operator("copy_")
_clone = Operator("clone")
_to_copy = Operator("_to_copy")
_CONTIGUOUS = {"memory_format": torch.contiguous_format}
_EXACT = {float: torch.float64, complex: torch.complex128}
"""The dtypes of numbers that are copied, where PyTorch's default dtype may not hold them."""


def copy_(self: torch.Tensor, src: torch.Tensor | complex, non_blocking: bool = False) -> torch.Tensor:
    """``self.copy_(src)``, where at least one of the tensors is on the device. ``src`` may be a number."""
    if not isinstance(src, torch.Tensor):
        src = torch.tensor(src, dtype=_EXACT.get(type(src)))
    if self.is_cpu:
        return self.copy_(to_cpu(src))
    if not src.is_cpu:
        return _copy(self, src)
    from_cpu(self, src)
    return self


def from_cpu(target: torch.Tensor, source: torch.Tensor) -> None:
    """Write the values of a CPU tensor into a device tensor."""
    wanted = source.detach()
    if wanted.dtype is not target.dtype:
        wanted = wanted.to(target.dtype)
    wanted = wanted.resolve_conj().resolve_neg()
    wanted = wanted.expand(target.shape)
    box = box_of(target)
    if _is_whole(target, box):
        flat = torch.empty_strided(target.shape, target.stride(), dtype=target.dtype, device="cpu")
        flat.copy_(wanted)
        replace(box, flat.as_strided((target.numel(),), (1,)))
        return
    _copy(target, placed(wanted.contiguous(), fresh=wanted.data_ptr() != source.data_ptr()))


def placed(host: torch.Tensor, *, fresh: bool = False) -> torch.Tensor:
    """Return a contiguous device tensor with the values of a contiguous CPU tensor.

    With ``fresh``, nothing else uses the CPU tensor, so it is not copied first.
    """
    made = torch.empty(host.shape, dtype=host.dtype, device="pjrt")
    replace(box_of(made), (host if fresh else host.clone()).reshape(-1))
    return made


def replace(box: Box, flat: torch.Tensor) -> None:
    """Let ``box`` hold the elements of a flat CPU tensor, which nobody may use afterwards."""
    element = element_of(flat.dtype)
    if element.torch is not flat.dtype:
        flat = flat.view(torch.uint8)
    box.replace(engine.from_host(flat), element)


def _is_whole(tensor: torch.Tensor, box: Box) -> bool:
    """Whether the tensor covers its whole storage, each element once, and has no lazy conjugation or sign."""
    if tensor.is_conj() or tensor.is_neg():
        return False
    return tensor.numel() * tensor.dtype.itemsize == box.nbytes and _is_dense(tensor)


def _is_dense(tensor: torch.Tensor) -> bool:
    expected = 1
    axes = sorted((step, n) for step, n in zip(tensor.stride(), tensor.shape, strict=True) if n != 1)
    for step, n in axes:
        if step != expected:
            return False
        expected *= n
    return True


def to_cpu(source: torch.Tensor) -> torch.Tensor:
    """Return a device tensor's values as a CPU tensor, for reading only: it may share the device's memory."""
    box = box_of(source)
    if not engine.place().shares_host_memory and not _is_whole(source, box):
        source = _clone(source, **_CONTIGUOUS)
    found = torch.empty(0, dtype=source.dtype, device="cpu")
    found.set_(
        host_bytes(box_of(source)).untyped_storage(), source.storage_offset(), source.shape, source.stride()
    )
    if source.is_conj():
        found = found.conj()
    return aten._neg_view(found) if source.is_neg() else found


def to_copy(
    self: torch.Tensor,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
    non_blocking: bool = False,
    memory_format: torch.memory_format | None = None,
) -> torch.Tensor:
    """``tensor.to(…)`` from or to the device. Copies to the CPU always wait; ``pin_memory`` is ignored."""
    wanted = {"dtype": dtype, "layout": layout, "memory_format": memory_format}
    given: dict[str, Any] = {name: value for name, value in wanted.items() if value is not None}
    if device is not None:
        check_device(device)
    if self.is_cpu:
        target = torch.empty_like(self, device=device, **given)
        from_cpu(target, self)
        return target
    if device is None or device.type == DEVICE_TYPE:
        return _to_copy(self, **given)
    return aten._to_copy.default(to_cpu(self), device=device, **given)


def local_scalar_dense(self: torch.Tensor) -> Any:
    """Return the value of a tensor of one element, for ``item()``."""
    return to_cpu(self).item()


def equal(self: torch.Tensor, other: torch.Tensor) -> bool:
    """``torch.equal``, compared on the CPU."""
    if self.device != other.device:
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices,"
            f" {self.device} and {other.device}!"
        )
    return torch.equal(to_cpu(self), to_cpu(other))


def allclose(
    self: torch.Tensor,
    other: torch.Tensor,
    rtol: float = 1e-05,
    atol: float = 1e-08,
    equal_nan: bool = False,
) -> bool:
    """``torch.allclose``, compared on the device."""
    return bool(torch.isclose(self, other, rtol=rtol, atol=atol, equal_nan=equal_nan).all())


# Storages ---------------------------------------------------------------------------------


def _copy_storage(
    self: torch.UntypedStorage, source: torch.UntypedStorage, non_blocking: bool | None = None
) -> torch.UntypedStorage:
    """``storage.copy_``: copy all bytes."""
    if self.nbytes() != source.nbytes():
        raise RuntimeError(
            f"size does not match, self was {self.nbytes()} bytes but src was {source.nbytes()} bytes"
        )
    if "cpu" not in (self.device.type, source.device.type):
        box, target = box_in(source), box_in(self)
        if box.nbytes == target.nbytes == self.nbytes():
            target.replace(box.ready(), box.dtype)
            return self
    written, read = (torch.empty(0, dtype=torch.uint8, device=one.device).set_(one) for one in (self, source))
    written.copy_(read)
    return self


def _resize_storage(self: torch.UntypedStorage, size: int) -> torch.UntypedStorage:
    """``storage.resize_``: raise if the size changes; PyTorch forbids this for a device written in Python."""
    if size == self.nbytes():
        return self
    raise RuntimeError(
        f"a storage on pjrt keeps its size: {self.nbytes()} bytes, asked for {size}\n"
        "  next: resize the tensor (tensor.resize_), which gets a larger storage with the same values"
    )


def _bytes_of(storage: torch.UntypedStorage) -> torch.Tensor:
    """Return a copy of a device storage's bytes in CPU memory."""
    return host_bytes(box_in(storage))[: storage.nbytes()].clone()


def _write_file(self: torch.UntypedStorage, *how: Any) -> None:
    """Write a storage to a file, for ``pickle`` and the old format of ``torch.save``."""
    _bytes_of(self).untyped_storage()._write_file(*how)


def _set_from_file(self: torch.UntypedStorage, *how: Any) -> torch.UntypedStorage:
    """Read a storage from a file, for ``torch.load`` of a file in the old format."""
    read = torch.UntypedStorage(self.nbytes())._set_from_file(*how)
    replace(box_in(self), torch.empty(0, dtype=torch.uint8, device="cpu").set_(read))
    return self


def _reduce(self: torch.UntypedStorage) -> tuple[Any, ...]:
    """Pickle a storage as a call of :func:`restored`, whose import registers the device when it is loaded."""
    return restored, (_bytes_of(self).numpy().tobytes(),)


def storage_on(device: torch.device, nbytes: int) -> torch.UntypedStorage:
    """Return a storage of ``nbytes`` without values."""
    check_device(device)
    return empty_storage(nbytes)


def restored(held: bytes) -> torch.UntypedStorage:
    """Return a device storage with the given bytes."""
    storage = empty_storage(len(held))
    if held:
        replace(box_in(storage), torch.frombuffer(bytearray(held), dtype=torch.uint8))
    return storage


def _identity(self: torch.UntypedStorage) -> int:
    """``storage.data_ptr()``: not an address but one number per storage, which ``torch.save`` needs."""
    return id(box_in(self)) if self.nbytes() else 0


STORAGE_METHODS: dict[str, Callable[..., Any]] = {
    "copy_": _copy_storage,
    "resize_": _resize_storage,
    "data_ptr": _identity,
    "_write_file": _write_file,
    "_set_from_file": _set_from_file,
    "__reduce__": _reduce,
}
