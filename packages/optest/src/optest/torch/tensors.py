"""Arrays as tensors and back, in every dtype that both sides have."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import torch
from numpy.typing import NDArray

_CARRIERS = {1: np.dtype("u1"), 2: np.dtype("i2")}
"""What carries the bits of dtypes that torch.from_numpy does not know, by size."""


def torch_dtype(name: str) -> torch.dtype:
    """The dtype of a name; ``NotImplementedError`` where PyTorch has none."""
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise NotImplementedError(f"PyTorch has no dtype {name}")
    return found


def to_tensor(array: NDArray[Any], device: torch.device | str = "cpu") -> torch.Tensor:
    """A tensor of the array's values and dtype, in memory of its own.

    It has the array's strides too, where tensors can have them: neither negative nor
    overlapping ones.
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
    """The array's strides in elements; None if a tensor that is written cannot have them."""
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
    """The tensor's values in memory of their own, in C order."""
    plain = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    name = str(plain.dtype).removeprefix("torch.")
    foreign = getattr(ml_dtypes, name, None)
    if foreign is None:
        return plain.numpy().copy()
    carrier = torch.uint8 if plain.element_size() == 1 else torch.int16
    flat = plain.reshape(-1).view(carrier).numpy()
    return flat.view(foreign).reshape(tuple(plain.shape)).copy()
