"""State of the process that PyTorch's operators depend on: the default dtype, autocast of the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from torchstone.device.drafting import Unplanned
from torchstone.errors import FallbackWarning

from .mirrored import DEVICE, mirrored


@pytest.fixture
def _default_dtype() -> Iterator[None]:
    before = torch.get_default_dtype()
    yield
    torch.set_default_dtype(before)


@pytest.mark.usefixtures("_default_dtype")
def test_the_default_dtype_holds_from_the_next_call_on() -> None:
    def make(device: str) -> Any:
        found = []
        for dtype in (torch.float32, torch.float64, torch.float32):
            torch.set_default_dtype(dtype)
            whole = torch.arange(1, 4, device=device)
            found += [
                torch.ones(2, device=device),
                torch.full((2,), 1.5, device=device),
                torch.arange(0.0, 3.0, device=device),
                torch.linspace(0, 1, 3, device=device),
                torch.eye(2, device=device),
                whole / 2,
                whole + 1.5,
                whole.sqrt(),
                whole * 1j,
                torch.rand(2, device=device).dtype,
            ]
        return found

    mirrored(make)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x @ x,
        lambda x: F.linear(x, x),
        lambda x: F.conv1d(x[None], x[:, :, None]),
        lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None]),
    ],
)
def test_autocast_of_the_cpu_leaves_the_device_alone(call: Any) -> None:
    x = torch.rand(3, 3, generator=torch.Generator().manual_seed(0)) + 0.001
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = call(x.to(DEVICE))
    assert found.dtype is torch.float32
    torch.testing.assert_close(found.cpu(), call(x))


def test_autocast_of_the_cpu_leaves_fallbacks_alone(
    falls_back: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unplanned(*_: Any) -> None:
        raise Unplanned("the test says so")

    monkeypatch.setattr("torchstone.device.operators.build", unplanned)
    x = torch.full((1, 17), 1.001, device=DEVICE)
    with torch.autocast("cpu", dtype=torch.bfloat16), pytest.warns(FallbackWarning):
        assert (x @ x.t()).dtype is torch.float32
