"""A simulated PyTorch device: PrivateUse1 under the name ``standin``, computed on the CPU.

It stands in for devices that are missing here (CUDA, MPS, XPU, vendors' own): tensors must be
moved to it and back, and its kernels refuse tensors of the CPU that are not 0-d. It is a plugin
of optest's tests, and importing it creates the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

NAME = "standin"
CALLS = [0]
"""The number of kernels that have run, as the only element."""
LACKING = torch.complex128
"""A dtype that the device does not have, as MPS has no float64."""

_setup_privateuseone_for_python_backend(NAME)
_any_operator = torch.library.Library("_", "IMPL")


def on_host(value: Any) -> Any:
    """Return the CPU tensor behind a tensor of the device, the CPU for the device, anything else itself.

    Raises RuntimeError for a tensor of another device, unless it is 0-d.
    """
    if isinstance(value, torch.Tensor):
        if value.device.type == NAME:
            return value.host_values  # type: ignore[attr-defined]
        if value.dim():
            raise RuntimeError(f"a kernel of {NAME} was given a tensor of {value.device}")
    if isinstance(value, torch.device) and value.type == NAME:
        return torch.device("cpu")
    return value


def on_device(value: Any) -> Any:
    """Return a tensor of the device with ``value`` behind it; anything but a tensor is returned as it is."""
    if not isinstance(value, torch.Tensor):
        return value
    made = torch._C._acc.create_empty_tensor(tuple(value.shape), value.dtype)
    made.host_values = value
    return made


def run_anything(operator: Any, *args: Any, **kwargs: Any) -> Any:
    """Run any operator on the CPU tensors; this is the kernel of all operators of the device."""
    CALLS[0] += 1
    return tree_map(on_device, operator(*tree_map(on_host, args), **tree_map(on_host, kwargs)))


_any_operator.fallback(run_anything, "PrivateUse1")


@torch.library.impl("aten::empty.memory_format", "PrivateUse1")
def empty(size: Sequence[int], dtype: Any = None, **_: Any) -> Any:
    return on_device(torch.empty(size, dtype=dtype))


@torch.library.impl("aten::empty_strided", "PrivateUse1")
def empty_strided(size: Sequence[int], stride: Sequence[int], dtype: Any = None, **_: Any) -> Any:
    return on_device(torch.empty_strided(size, stride, dtype=dtype))


@torch.library.impl("aten::_copy_from", "PrivateUse1")
def copy_from(source: Any, target: Any, non_blocking: bool = False) -> Any:
    where = target.host_values if target.device.type == NAME else target
    where.copy_(source.host_values if source.device.type == NAME else source)
    return target


@torch.library.impl("aten::_to_copy", "PrivateUse1")
def to_copy(source: Any, dtype: Any = None, device: Any = None, **_: Any) -> Any:
    if (dtype or source.dtype) is LACKING and device is not None and torch.device(device).type == NAME:
        raise TypeError(f"Cannot convert a {NAME} Tensor to {LACKING}")
    values = source.host_values if source.device.type == NAME else source
    found = values.to(dtype or source.dtype, copy=True)
    return found if device is not None and torch.device(device).type == "cpu" else on_device(found)


@torch.library.impl("aten::detach", "PrivateUse1")
def detach(source: Any) -> Any:
    return on_device(source.host_values)
