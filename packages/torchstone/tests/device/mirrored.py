"""Runs a function on the CPU and on the device, and compares what must be equal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from torchstone.config import config

DEVICE = "pjrt"
EXACT = {"rtol": 0.0, "atol": 0.0}


def mirrored(function: Callable[[str], Any], **tolerance: float) -> Any:
    """Compare ``function(device)`` on the CPU and on the device; return the device's result.

    Tensors must agree in values, dtype, shape, strides, offset, version and what autograd knows of them.
    """
    torch.manual_seed(0)
    expected = function("cpu")
    torch.manual_seed(0)
    found = function(DEVICE)
    compare(found, expected, **tolerance)
    return found


def compare(found: Any, expected: Any, **tolerance: float) -> None:
    if isinstance(expected, Tensor):
        assert isinstance(found, Tensor)
        assert describe(found) == describe(expected)
        torch.testing.assert_close(
            found.detach().cpu(), expected.detach(), equal_nan=True, check_stride=False, **tolerance
        )
    elif isinstance(expected, (list, tuple)):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            compare(one, other, **tolerance)
    elif isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key in expected:
            compare(found[key], expected[key], **tolerance)
    else:
        assert found == expected


def describe(tensor: Tensor) -> dict[str, Any]:
    return {
        "dtype": tensor.dtype,
        "shape": tensor.shape,
        "stride": tensor.stride(),
        "offset": tensor.storage_offset(),
        "version": tensor._version,
        "leaf": tensor.is_leaf,
        "requires_grad": tensor.requires_grad,
        "view": tensor._is_view(),
        "conj": tensor.is_conj(),
        "neg": tensor.is_neg(),
    }


def shares(*tensors: Tensor) -> bool:
    """Whether all tensors are views of one storage."""
    first, *rest = tensors
    return all(first.untyped_storage()._cdata == one.untyped_storage()._cdata for one in rest)


def computed(result: Any) -> Any:
    """Return ``result`` once its call has run: fused eager reports errors that depend on values then."""
    if config.device_lazy:
        torch.pjrt.synchronize()
    return result


def refusals(function: Callable[[str], Any]) -> Sequence[Exception]:
    """Return what ``function(device)`` raises on the CPU and on the device."""
    found = []
    for device in ("cpu", DEVICE):
        try:
            computed(function(device))
        except Exception as error:  # noqa: BLE001  # compared by the caller
            found.append(error)
        else:
            raise AssertionError(f"nothing was raised on {device}")
    return found
