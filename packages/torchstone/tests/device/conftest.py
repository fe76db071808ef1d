"""Registers the device with the process. Every test starts without counted fallbacks, and refuses them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import torchstone.device
from torchstone.config import override

torchstone.device.register()


@pytest.fixture(autouse=True)
def _no_fallback(request: pytest.FixtureRequest) -> Iterator[None]:
    """Make computing on the CPU an error, unless the test requests ``falls_back``."""
    torch.pjrt.reset_fallbacks()
    if "falls_back" in request.fixturenames:
        yield
        return
    with override(device_fallback="error"):
        yield


@pytest.fixture
def falls_back() -> None:
    """Allow operators that are computed on the CPU, because the test is about them."""


@pytest.fixture
def plain_by_default() -> Iterator[None]:
    """Turn fused eager off, even if the environment turns it on, because the test turns it on by itself."""
    with override(device_lazy=False):
        yield
