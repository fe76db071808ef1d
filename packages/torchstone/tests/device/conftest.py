"""The device is registered with the process; every test starts without counted fallbacks and refuses them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import torchstone.device
from torchstone.config import override

torchstone.device.register()


@pytest.fixture(autouse=True)
def _no_fallback(request: pytest.FixtureRequest) -> Iterator[None]:
    """Computing on the CPU is an error unless the test is marked as one about fallbacks."""
    torch.pjrt.reset_fallbacks()
    if "falls_back" in request.fixturenames:
        yield
        return
    with override(device_fallback="error"):
        yield


@pytest.fixture
def falls_back() -> None:
    """The test is about operators that are computed on the CPU."""
