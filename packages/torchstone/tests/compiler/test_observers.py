"""Fake quantization with its observer: every result against PyTorch's kernel, and training with it."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import torch
from torch import nn

import torchstone
from torchstone.compiler.operators.observers import fused_moving_average_observer
from torchstone.errors import CaptureError
from training_loops import assert_same_training, eager_step

aten = torch.ops.aten
Tensor = torch.Tensor

RANGES = [(0, 255), (-128, 127), (0, 127), (-127, 127), (-8, 7), (0, 3)]


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("per_row", [False, True])
def test_each_result_is_that_of_the_kernel(per_row: bool, symmetric: bool) -> None:
    generator = torch.Generator().manual_seed(int(per_row) * 2 + symmetric)

    def chosen(values: Any) -> Any:
        return values[int(torch.randint(len(values), (), generator=generator))]

    for _ in range(150):
        shape, size = chosen([(3, 4), (5, 1), (2, 3, 4)]), 10.0 ** chosen(range(-9, 6))
        rows = shape[0] if per_row else 1
        x = (torch.randn(shape, generator=generator) + chosen([0, 0, 3, -3])) * size * chosen([0, *[1] * 9])
        low = torch.randn(rows, generator=generator) * size - size
        high = low + torch.rand(rows, generator=generator) * size
        if chosen([True, False]):
            low, high = torch.full((rows,), torch.inf), torch.full((rows,), -torch.inf)
        switches = torch.tensor([chosen([1, 1, 0])]), torch.tensor([chosen([1, 1, 0])])
        state = [low, high, torch.ones(rows), torch.zeros(rows, dtype=torch.int32)]
        rest = (0.01, *chosen(RANGES), 0, per_row, symmetric)
        found = fused_moving_average_observer(x, *switches, *state, *rest)
        result = aten._fused_moving_avg_obs_fq_helper(x, *switches, *state, *rest)  # writes into the state
        torch.testing.assert_close(found, (*result, *state), rtol=0, atol=0)


class Quantized(nn.Module):
    """A linear layer whose weight and result are rounded, with observers."""

    def __init__(self) -> None:
        super().__init__()
        quantization = pytest.importorskip("torch.ao.quantization")
        fused = quantization.FusedMovingAvgObsFakeQuantize
        self.linear = nn.Linear(4, 6)
        self.weight = fused(
            quantization.MovingAveragePerChannelMinMaxObserver,
            quant_min=-128,
            quant_max=127,
            dtype=torch.qint8,
            qscheme=torch.per_channel_symmetric,
            ch_axis=0,
        )
        self.result = fused(quantization.MovingAverageMinMaxObserver, quant_min=0, quant_max=255)

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight(self.linear.weight)
        return self.result(nn.functional.linear(x, weight, self.linear.bias).relu())


@pytest.fixture
def model() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        made = Quantized()
    made(torch.randn(5, 4))
    return made


def squares(result: Tensor, _: Tensor) -> Tensor:
    return result.square().mean()


@pytest.mark.parametrize("road", ["torch.compile", "compile_step"])
def test_quantization_aware_training(model: nn.Module, road: str) -> None:
    expected = copy.deepcopy(model)
    optimizer, other = (torch.optim.SGD(one.parameters(), 0.1, momentum=0.9) for one in (model, expected))
    compiled = torch.compile(model, backend="torchstone")
    step = torchstone.compile_step(model, optimizer, squares)
    for seed in range(4):
        x = torch.randn(5, 4, generator=torch.Generator().manual_seed(seed))
        if road == "compile_step":
            loss = step(x, x)
        else:
            loss = eager_step(compiled, optimizer, x, x, squares)
        torch.testing.assert_close(loss, eager_step(expected, other, x, x, squares))
    assert_same_training(model, optimizer, expected, other)


def test_an_exported_model_moves_its_ranges(model: nn.Module) -> None:
    x = torch.randn(5, 4)
    shapes = {"x": {0: torch.export.Dim("rows")}}
    program = torchstone.export(copy.deepcopy(model), (x,), dynamic_shapes=shapes)
    for rows in (5, 1, 3):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(program(x), model(x))


def test_an_observer_that_saw_nothing_is_refused() -> None:
    with pytest.raises(CaptureError, match="0 minimums for 6 ranges: run the model in eager PyTorch once"):
        torchstone.export(Quantized(), (torch.randn(5, 4),))
