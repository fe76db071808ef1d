"""The tensors that compiled forward code saves for its backward are in the engine's order of computation."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import torchstone


class Network(nn.Module):
    """A network whose forward returns a value that its backward needs, a view of another, and a scalar."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        convolution = {2: nn.Conv2d, 3: nn.Conv3d}[rank]
        self.first, self.second = convolution(3, 6, 3, padding=1), convolution(6, 4, 3)
        self.norm = {2: nn.BatchNorm2d, 3: nn.BatchNorm3d}[rank](6)
        self.pool = {2: F.max_pool2d, 3: F.max_pool3d}[rank]

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        shown = self.norm(self.first(x)).tanh()
        y = self.second(self.pool(shown, 2)).sigmoid()
        return shown, y.flatten(2), (y.exp() * 2).sin().sum()


def trained(network: nn.Module, function: Any, x: torch.Tensor) -> tuple[list[Any], list[torch.Tensor]]:
    saved: list[torch.Tensor] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        saved.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        outputs = function(x)
    sum(output.square().sum() for output in outputs).backward()
    return [*outputs, x.grad, *(p.grad for p in network.parameters())], saved


@pytest.mark.kept("2")
@pytest.mark.parametrize("rank", [2, 3])
def test_convolutions_save_with_channels_last(rank: int) -> None:
    torch.manual_seed(0)
    network = Network(rank).double()
    x = torch.randn(2, 3, *[10] * rank, dtype=torch.float64)
    expected, _ = trained(network, network, x.clone().requires_grad_())
    own = copy.deepcopy(network)
    own.zero_grad()
    found, saved = trained(
        own, torch.compile(own, backend="torchstone", dynamic=False), x.clone().requires_grad_()
    )
    torch.testing.assert_close(found, expected)
    assert [one.stride() for one in found] == [one.stride() for one in expected]
    large = [one for one in saved if one.dim() == rank + 2 and one.shape[1] not in (1, 3) and len(one) == 2]
    last = [one for one in large if one.stride(1) == 1]
    assert last
    shown = [one for one in large if one.shape == found[0].shape and one.data_ptr() == found[0].data_ptr()]
    assert all(one.is_contiguous() for one in shown)


def test_other_engines_save_as_they_compute() -> None:
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Tanh(), nn.Conv2d(4, 2, 3))
    function = torch.compile(network, backend="torchstone", options={"engine": "jax"})
    hooks = torch.autograd.graph.saved_tensors_hooks
    contiguous: list[bool] = []
    with hooks(lambda one: contiguous.append(one.is_contiguous()) or one, lambda one: one):
        function(torch.randn(2, 3, 8, 8)).sum().backward()
    assert contiguous
    assert all(contiguous)


def test_parts_around_eager_operators_agree() -> None:
    """An operator without a lowering divides the graph; its results are saved in PyTorch's own order."""
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Tanh(), nn.Conv2d(4, 2, 3))

    def function(x: torch.Tensor) -> torch.Tensor:
        return network[2](divided(network[:2](x))).square().sum()

    x = torch.randn(2, 3, 8, 8)
    expected = torch.autograd.grad(function(x), [*network.parameters()])
    with pytest.warns(torchstone.errors.FallbackWarning):
        compiled = torch.compile(function, backend="torchstone")(x)
    found = torch.autograd.grad(compiled, [*network.parameters()])
    torch.testing.assert_close(found, expected)


@torch.library.custom_op("torchstone_tests::divided", mutates_args=())
def divided(x: torch.Tensor) -> torch.Tensor:
    return x.sin()


@divided.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def _setup(ctx: Any, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:
    ctx.save_for_backward(inputs[0], output)


def _gradient(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
    x, _ = ctx.saved_tensors
    return grad * x.cos()


divided.register_autograd(_gradient, setup_context=_setup)
