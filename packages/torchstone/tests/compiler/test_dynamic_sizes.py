"""Errors of an export if a model does not accept every size that a dynamic dimension allows."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

import torchstone
from torchstone.compiler.dynamic_sizes import Sizes
from torchstone.errors import CaptureError


class Fixed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.fc(x)
        return y.reshape(5, 3).sum(0)


def fixed(x: Tensor) -> Tensor:
    return x + torch.ones(5, 1)


def at_least_five(x: Tensor) -> Tensor:
    return x * 2 if x.shape[0] > 4 else x


def odd(x: Tensor) -> Tensor:
    return x * 2 if x.shape[0] % 2 == 1 else x


def cropped(x: Tensor) -> Tensor:
    return nn.functional.pad(x.mT, (-2, -1))


@pytest.mark.parametrize(
    ("model", "line", "told", "suggested"),
    [
        (Fixed(), "y.reshape(5, 3)", "(3*d) == 15 (d is x.shape[0]) at", "d = 5"),
        (fixed, "torch.ones(5, 1)", "d == 5 (d is input 0.shape[0]) at", "d = 5"),
        (at_least_five, "x.shape[0] > 4", "d > 4 (d is input 0.shape[0]) at", "d = Dim('d', min=5)"),
        (odd, "x.shape[0] % 2", "(d % 2) == 1 (d is input 0.shape[0]) at", "d = 2*_d - 1"),
        (cropped, "pad(x.mT", "(-3) + d >= 0 (d is input 0.shape[0]) at", None),
    ],
)
def test_the_line_that_needs_a_size_is_named(
    model: Callable[..., Any], line: str, told: str, suggested: str | None
) -> None:
    source, first = inspect.getsourcelines(type(model) if isinstance(model, nn.Module) else model)
    number = next(first + i for i, text in enumerate(source) if line in text)
    with pytest.raises(CaptureError) as caught:
        torchstone.export(model, (torch.randn(5, 3),), dynamic_shapes=({0: Dim("d")},))
    message = str(caught.value)
    assert f"{told} {__file__}:{number}: " in message
    assert line in message
    assert suggested is None or re.search(f"PyTorch suggests .*{re.escape(suggested)}", message)
    assert "TORCH_LOGS" not in message


def test_unnamed_dimensions_are_called_by_their_input() -> None:
    def model(x: Tensor, mask: Tensor) -> Tensor:
        return x[:4] + mask.view(4)

    with pytest.raises(CaptureError, match=r"\n  mask\.shape\[0\] == 4 at .*mask\.view\(4\)"):
        torchstone.export(
            model,
            (torch.randn(5),),
            {"mask": torch.randn(4)},
            dynamic_shapes={"args": (None,), "kwargs": {"mask": {0: Dim.DYNAMIC}}},
        )


def test_a_size_that_no_line_needs_is_named() -> None:
    """PyTorch assumes such sizes when it checks how results are laid out in memory."""
    size = "L['args'][0].size()[2]"
    said = f"Not all values of d = {size} in the specified range satisfy the generated guard {size} != 9."
    error = ValueError(f'Constraints violated (d)! For more, run with TORCH_LOGS="+dynamic".\n  - {said}\n')
    told = str(Sizes(fixed.__code__).error("model", error))
    assert "It needs:\n  input 0.shape[2] != 9\n" in told
    assert "TORCH_LOGS" not in told
