"""Run operators that no program can be made for on the CPU, with a count and a warning, or refuse them."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from .. import dtypes
from ..config import config
from ..errors import ConfigError, FallbackRefused, FallbackWarning
from ..torch_internals import pytree
from ..torch_internals.device_tensors import put_on, tensor_on
from ..torch_internals.operators import OpOverload, schema_of
from ..torch_internals.private_device import below_autocast, has_cpu_kernel, written_arguments
from . import engine
from .calls import Call, element_of, substituted
from .storage import Box, new_storage, new_tensor

counts: Counter[str] = Counter()
"""How often each operator ran on the CPU."""
_warned: set[str] = set()
_CHOICES = ("warn", "silent", "error")


def fall_back(
    overload: OpOverload, call: Call, args: Sequence[Any], kwargs: Mapping[str, Any], reason: str
) -> Any:
    """Compute the call on the CPU and return its result on the device.

    Errors that PyTorch raises on the CPU propagate, and such a call is not counted. Raises
    :class:`FallbackRefused` if ``config.device_fallback`` is ``"error"``.
    """
    if config.device_fallback not in _CHOICES:
        raise ConfigError(
            f"config.device_fallback is {config.device_fallback!r}", hint=f"use {', '.join(_CHOICES)}"
        )
    name = str(overload)
    done = _OnCpu(overload, call, args, kwargs)
    if config.device_fallback == "error":
        raise FallbackRefused(
            f"{name} cannot run on pjrt with {_signature(call)}: {reason}",
            hint="register a lowering with torchstone.lowering.lowers (docs: Adding an operator),"
            ' or set config.device_fallback = "warn" to compute it on the CPU',
        )
    result = done.brought_back()
    counts[name] += 1
    if config.device_fallback == "warn" and name not in _warned:
        _warned.add(name)
        warnings.warn(
            f"{name} runs on the CPU, with copies both ways ({_signature(call)}): {reason}"
            "\n  next: torch.pjrt.fallbacks() counts all such calls;"
            ' config.device_fallback = "error" makes them errors',
            FallbackWarning,
            stacklevel=3,
        )
    return result


def ask_cpu(overload: OpOverload, call: Call, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise the error that the operator's CPU kernel raises for the call, if any, without side effects.

    The kernel runs on copies of the tensors that it might write.
    """
    if has_cpu_kernel(overload):
        _OnCpu(overload, call, args, kwargs)


def _signature(call: Call) -> str:
    found = ", ".join(str(tensor.dtype).removeprefix("torch.") for tensor in call.tensors)
    return f"dtypes {found}" if found else "no tensors"


class _OnCpu:
    """A run of the operator's CPU kernel; ``brought_back`` copies its results to the device.

    The kernel works on host copies of the storages if it writes any argument.
    """

    def __init__(
        self, overload: OpOverload, call: Call, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> None:
        self.call = call
        names = written_arguments(overload)
        hosts = [host_bytes(box, copied=bool(names)) for box in call.boxes]
        self.given = [
            tensor if place < 0 else _on_host(tensor, hosts[place])
            for tensor, place in zip(call.tensors, call.places, strict=True)
        ]
        feed = iter(self.given)
        cpu_args, cpu_kwargs = substituted(call, args, kwargs, lambda _: next(feed))
        schema = [one.name for one in schema_of(overload).arguments]
        named = {**dict(zip(schema, cpu_args, strict=False)), **cpu_kwargs}
        written = pytree.tree_leaves([named.get(name) for name in names])
        self.written = {id(leaf) for leaf in written if isinstance(leaf, torch.Tensor)}
        hosts_given = (one for one, place in zip(self.given, call.places, strict=True) if place < 0)
        if any(id(one) in self.written for one in hosts_given):
            raise RuntimeError(
                "an operator on pjrt tensors cannot write into a tensor on the CPU\n"
                '  next: move the written tensor with .to("pjrt")'
            )
        with below_autocast():
            self.result = overload(*cpu_args, **cpu_kwargs)

    def brought_back(self) -> Any:
        """Write what the kernel wrote to the device's tensors, and return its result on the device."""
        tensors = list(zip(self.call.tensors, self.given, self.call.places, strict=True))
        for tensor, cpu, place in tensors:
            if id(cpu) in self.written and place >= 0:
                _bring_back(tensor, cpu, self.call.boxes[place])
        known = {id(cpu): tensor for tensor, cpu, _ in tensors}
        homes = {
            cpu.untyped_storage().data_ptr(): tensor
            for tensor, cpu, place in tensors
            if place >= 0 and cpu.untyped_storage().nbytes() and not self.written
        }

        def lifted(value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                return value
            if id(value) in known:
                return known[id(value)]
            home = homes.get(value.untyped_storage().data_ptr()) if value.layout is torch.strided else None
            if home is None:
                return to_device(value)
            storage = home.untyped_storage()
            return tensor_on(storage, value.dtype, value.shape, value.stride(), value.storage_offset())

        return pytree.tree_map(lifted, self.result)


def host_bytes(box: Box, *, copied: bool = False) -> torch.Tensor:
    """Return the bytes of a storage in CPU memory. They must only be read, unless ``copied``."""
    held = engine.to_host(box.ready(), box.dtype)
    if copied:
        held = held.clone()
    return held.view(torch.uint8)


def _on_host(tensor: torch.Tensor, host: torch.Tensor) -> torch.Tensor:
    """Return a view of a storage's host bytes with the geometry of a device tensor."""
    found = torch.empty(0, dtype=tensor.dtype, device="cpu")
    found.set_(host.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride())
    if tensor.is_conj():
        found = found.conj()
    return torch.ops.aten._neg_view(found) if tensor.is_neg() else found


def _bring_back(tensor: torch.Tensor, cpu: torch.Tensor, box: Box) -> None:
    """Give a device tensor the values, shape and strides of the CPU tensor that was written for it."""
    storage = cpu.untyped_storage()
    whole = torch.empty(0, dtype=torch.uint8, device="cpu").set_(storage)
    element = element_of(tensor.dtype)
    if len(whole) % element.itemsize or (element is dtypes.BOOL and box.dtype is not dtypes.BOOL):
        element = dtypes.UINT8
    whole = whole.view(element.torch)
    box.grow(len(whole) * element.itemsize, keep=False)
    box.replace(engine.from_host(whole.clone()), element)
    if cpu.shape != tensor.shape or cpu.stride() != tensor.stride():
        home = tensor.untyped_storage()
        if home.nbytes() < box.nbytes:
            home = new_storage(box)
        put_on(tensor, home, cpu.shape, cpu.stride(), cpu.storage_offset())


def to_device(value: torch.Tensor) -> torch.Tensor:
    """Return a device tensor with the values, shape and strides of a CPU tensor.

    Raises ``NotImplementedError`` if the tensor is not strided or is quantized.
    """
    if value.layout is not torch.strided or value.is_quantized:
        raise NotImplementedError(
            f"pjrt tensors are strided; this call returns one of layout {value.layout}, dtype {value.dtype}"
            "\n  next: convert it on the CPU, or to a dense tensor first"
        )
    plain = value.detach().resolve_conj().resolve_neg()
    element = element_of(plain.dtype)
    end = 1 + sum((n - 1) * step for n, step in zip(plain.shape, plain.stride(), strict=True))
    count = end if plain.numel() else 0
    flat = torch.zeros(count, dtype=plain.dtype, device="cpu")
    flat.as_strided(plain.shape, plain.stride()).copy_(plain)
    if element.torch is not plain.dtype:
        flat = flat.view(torch.uint8)
    nbytes = count * plain.dtype.itemsize
    return new_tensor(engine.from_host(flat), element, plain.dtype, nbytes, plain.shape, plain.stride())
