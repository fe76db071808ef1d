"""Converts arrays to tensors and back, in every dtype that both NumPy and PyTorch have."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import torch
from numpy.typing import NDArray

_CARRIERS = {1: np.dtype("u1"), 2: np.dtype("i2")}
"""The integer dtypes, by item size, that hold the bits of dtypes unknown to ``torch.from_numpy``."""


def torch_dtype(name: str) -> torch.dtype:
    """Return the dtype ``name``; raises ``NotImplementedError`` if PyTorch has none."""
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise NotImplementedError(f"PyTorch has no dtype {name}")
    return found


def to_tensor(array: NDArray[Any], device: torch.device | str = "cpu") -> torch.Tensor:
    """Copy an array to a tensor with its values and dtype.

    The tensor has the array's strides too, unless they are negative or overlap, which a new
    tensor cannot have.
    """
    dtype = torch_dtype(array.dtype.name)
    flat = np.ascontiguousarray(array).reshape(-1)
    if hasattr(ml_dtypes, array.dtype.name):
        tensor = torch.from_numpy(flat.view(_CARRIERS[array.itemsize])).view(dtype)
    else:
        tensor = torch.from_numpy(flat)
    tensor = tensor.reshape(array.shape)
    steps = _steps(array)
    if steps is None or tensor.stride() == steps:
        return tensor.clone().to(device)
    return torch.empty_strided(array.shape, steps, dtype=dtype).copy_(tensor).to(device)


def _steps(array: NDArray[Any]) -> tuple[int, ...] | None:
    """Return the array's strides in elements; None if a tensor to be filled cannot have them."""
    if not array.size or any(stride % array.itemsize for stride in array.strides):
        return None
    steps = tuple(stride // array.itemsize for stride in array.strides)
    reach = 1
    for step, size in sorted((step, size) for step, size in zip(steps, array.shape, strict=True) if size > 1):
        if step < reach:
            return None
        reach = step * size
    return None if min(steps, default=0) < 0 else steps


def to_array(tensor: torch.Tensor) -> NDArray[Any]:
    """Return the tensor's values as an array in C order."""
    plain = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    name = str(plain.dtype).removeprefix("torch.")
    foreign = getattr(ml_dtypes, name, None)
    if foreign is None:
        return plain.numpy().copy()
    carrier = torch.uint8 if plain.element_size() == 1 else torch.int16
    flat = plain.reshape(-1).view(carrier).numpy()
    return flat.view(foreign).reshape(tuple(plain.shape)).copy()
