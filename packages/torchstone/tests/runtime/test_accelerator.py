"""A sample on whatever PJRT device is here besides the CPU (`make test-accelerator`)."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy
import pytest
import torch
from torch import nn

import torchstone
from torchstone import runtime
from torchstone.config import config, override
from torchstone.runtime import get_engine

pytestmark = pytest.mark.accelerator

EXACT = """
func.func @main(%x: tensor<4x5xi64>, %y: tensor<4x5xi64>) -> (tensor<4x5xi64>, tensor<4x5xi1>) {
  %product = stablehlo.multiply %x, %y : tensor<4x5xi64>
  %less = stablehlo.compare LT, %x, %product : (tensor<4x5xi64>, tensor<4x5xi64>) -> tensor<4x5xi1>
  return %product, %less : tensor<4x5xi64>, tensor<4x5xi1>
}
"""

FLOATING = """
func.func @main(%x: tensor<8x16xf32>, %w: tensor<16x4xf32>) -> (tensor<8x4xf32>, tensor<8xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %dot = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0], precision = [HIGHEST, HIGHEST]
    : (tensor<8x16xf32>, tensor<16x4xf32>) -> tensor<8x4xf32>
  %tanh = stablehlo.tanh %dot : tensor<8x4xf32>
  %sum = stablehlo.reduce(%tanh init: %zero) applies stablehlo.add across dimensions = [1]
    : (tensor<8x4xf32>, tensor<f32>) -> tensor<8xf32>
  return %tanh, %sum : tensor<8x4xf32>, tensor<8xf32>
}
"""

MODELS = {
    "mlp": (lambda: nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 4)), (32, 16)),
    "cnn": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 5)
        ),
        (4, 3, 8, 8),
    ),
    "attention": (lambda: nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True), (2, 10, 32)),
}
"""By name: a function that makes a network, and the shape of its input."""


def run(device: str, module: str, *arrays: numpy.ndarray) -> list[numpy.ndarray]:
    executable = get_engine("pjrt", device, config.plugin).compile(module)
    return [buffer.to_numpy() for buffer in executable(*arrays)]


def test_integers_agree_with_the_cpu(accelerator: str) -> None:
    draw = numpy.random.default_rng(0)
    arrays = [draw.integers(-(2**62), 2**62, size=(4, 5)) for _ in range(2)]
    for there, here in zip(run(accelerator, EXACT, *arrays), run("cpu", EXACT, *arrays), strict=True):
        numpy.testing.assert_array_equal(there, here, strict=True)


def test_floats_agree_with_the_cpu(accelerator: str) -> None:
    draw = numpy.random.default_rng(0)
    arrays = [draw.standard_normal(shape, dtype=numpy.float32) for shape in ((8, 16), (16, 4))]
    for there, here in zip(run(accelerator, FLOATING, *arrays), run("cpu", FLOATING, *arrays), strict=True):
        numpy.testing.assert_allclose(there, here, rtol=1.3e-6, atol=1e-5, strict=True)


def test_products_are_as_exact_as_on_the_cpu(accelerator: str) -> None:
    x, w = torch.randn(64, 512), torch.randn(512, 32)
    program = torchstone.export(torch.matmul, (x, w))
    with override(device=accelerator):
        torch.testing.assert_close(program(x, w).double(), x.double() @ w.double(), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(("model", "shape"), MODELS.values(), ids=MODELS)
def test_models_of_the_cpu_run_there(accelerator: str, model: Any, shape: tuple[int, ...]) -> None:
    network, x = model(), torch.randn(shape)
    fast = torch.compile(network, backend="torchstone", options={"device": accelerator})
    close(fast(x), network(x))


@pytest.fixture
def gpu(accelerator: str) -> Iterator[torch.device]:
    """Return PyTorch's device for the accelerator; it is the default device during the test."""
    with override(device=accelerator):
        place = getattr(get_engine(), "torch_device", None)
        if place is None:
            pytest.skip("this build of PyTorch does not have the memory of the accelerator")
        yield place


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("model", "shape"), MODELS.values(), ids=MODELS)
def test_training_stays_on_the_gpu(gpu: torch.device, model: Any, shape: tuple[int, ...]) -> None:
    eager = model().to(gpu)
    ours = copy.deepcopy(eager)
    fast = torch.compile(ours, backend="torchstone")
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.05, momentum=0.9) for one in (eager, ours)]
    for turn in range(4):
        if turn == 1:
            runtime.reset_stats()
        x = torch.randn(shape, device=gpu)
        losses = []
        for function, optimizer in zip((eager, fast), optimizers, strict=True):
            optimizer.zero_grad()
            loss = function(x).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss)
        assert losses[1].device == gpu
        close(losses[1], losses[0])
    assert not any(one.count for one in runtime.stats().copies_in.values()), runtime.stats()
    assert not any(one.count for one in runtime.stats().copies_out.values()), runtime.stats()
    for found, expected in zip(ours.parameters(), eager.parameters(), strict=True):
        close(found, expected)


def test_work_is_done_in_order(gpu: torch.device) -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (x @ w).tanh() + x

    fast = torch.compile(function, backend="torchstone")
    w = torch.randn(1500, 1500, device=gpu) / 40
    weights, pairs = [w, w.clone()], []
    for turn in range(30):
        x = torch.randn(1500, 1500, device=gpu)
        product = x @ x.t() / 1500
        pairs.append((fast(product, weights[0]), function(product, weights[1])))
        del product
        for one in (*weights, x):  # write while the program may still read the first weight
            one.mul_(0.99).add_(turn * 1e-5)
        scratch = torch.full((1500, 1500), float(turn), device=gpu)  # reuse memory that was freed
        del scratch
    for found, expected in pairs:
        close(found, expected)


def test_a_program_is_called_with_tensors_of_the_gpu(gpu: torch.device) -> None:
    x = torch.randn(8, 16)
    program = torchstone.export(lambda a: (a.t() @ a, a.new_zeros(0, 3)), (x,))
    product, empty = program(x.to(gpu).t().contiguous().t())
    assert product.device == empty.device == gpu
    close(product.cpu(), x.t() @ x)
    assert isinstance(program(x.numpy())[0], numpy.ndarray)
    assert program(x)[0].device.type == "cpu"


def test_results_lie_where_the_code_puts_them(gpu: torch.device) -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x.add_(1)
        return (x * 2).cpu(), x * y.to(x.device)

    fast = torch.compile(function, backend="torchstone")
    for _ in range(3):
        there, y = torch.arange(5.0, device=gpu), torch.ones(5)
        here = there.clone()
        for found, expected in zip(fast(here, y), function(there, y), strict=True):
            assert found.device == expected.device
            close(found, expected)
        close(here, there)


@pytest.mark.parametrize("kind", ["sgd", "adamw"])
def test_a_whole_step_updates_memory_of_the_gpu(gpu: torch.device, kind: str) -> None:
    def optimizer(model: nn.Module) -> torch.optim.Optimizer:
        if kind == "sgd":
            return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        return torch.optim.AdamW(model.parameters(), lr=0.01, capturable=True)

    # AdamW makes full-size steps of gradients that are zero up to rounding, as of a bias before batch norm
    model, shape = MODELS["cnn" if kind == "sgd" else "mlp"]
    eager = model().to(gpu)
    ours = copy.deepcopy(eager)
    one, other = optimizer(eager), optimizer(ours)
    step = torchstone.compile_step(ours, other, lambda net, batch: net(batch).square().mean())
    for _ in range(5):
        x = torch.randn(shape, device=gpu)
        one.zero_grad()
        expected = eager(x).square().mean()
        expected.backward()
        one.step()
        close(torch.as_tensor(step(x)), expected.detach())
    for found, wanted in zip(ours.state_dict().values(), eager.state_dict().values(), strict=True):
        assert found.device == gpu
        close(found, wanted)


def test_a_step_refuses_state_on_the_cpu(gpu: torch.device) -> None:
    model = nn.Linear(3, 2)
    step = torchstone.compile_step(
        model, torch.optim.SGD(model.parameters(), lr=0.1), lambda net, batch: net(batch).sum()
    )
    with pytest.raises(torchstone.errors.TrainingError, match="a tensor of the training state"):
        step(torch.ones(4, 3))
