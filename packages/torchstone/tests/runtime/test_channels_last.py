"""Layout assignment: convolutions and what is around them in channels-last order, with the same results."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from cpu_modules import rewritten
from torchstone import export, hlo
from torchstone.compiler.program import build_program
from torchstone.runtime import cpu, modules


def assigned(function: Callable[..., object], *args: torch.Tensor) -> str:
    """Return the text of the module compiled for ``function``, after the assignment."""
    module = function if isinstance(function, nn.Module) else _Module(function)
    return rewritten(build_program(module.eval(), args).module.serialize(hlo.resolve_version("current")))


class _Module(nn.Module):
    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: torch.Tensor) -> object:
        return self.function(*args)


def transposes(text: str) -> list[str]:
    """Return the shapes of transposed tensors, without weights of convolutions (3 × 3)."""
    found = re.findall(r"stablehlo\.transpose .*: \(tensor<([\dx]+)x[a-z]\w*>\)", text)
    return [shape for shape in found if "3x3" not in shape]


class Block(nn.Module):
    """Convolutions with what usually lies between them."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, stride=2, padding=1)
        self.norm, self.three = nn.BatchNorm2d(8), nn.Conv2d(16, 4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.gelu(self.norm(self.one(x)))
        x = F.max_pool2d(x, 3, 2, 1) + torch.tanh(self.two(x))
        x = self.three(F.pad(torch.cat([x, x.flip(3)[:, :, ::1]], 1), (1, 2, 0, 1)))
        return x.clamp(-1.0, 1.0).mean((2, 3))


def test_transposes_are_left_at_the_borders_only() -> None:
    x = torch.randn(64, 3, 16, 16)
    assert transposes(assigned(Block(), x)) == ["64x3x16x16"]


@pytest.mark.kept("True")
@pytest.mark.parametrize("training", [False, True])
def test_results_and_gradients_agree_with_eager(training: bool) -> None:
    torch.manual_seed(0)
    model = Block().train(training)
    x = torch.randn(64, 3, 16, 16)
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="torchstone", fullgraph=True)
    eager = copy.deepcopy(model)
    expected, found = eager(x), compiled(x)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    expected.square().sum().backward()
    found.square().sum().backward()
    for ours, theirs in zip(model.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-3, atol=1e-3)


CASES: dict[str, tuple[Callable[..., torch.Tensor], list[tuple[int, ...]]]] = {
    "one spatial axis": (lambda x, k: F.relu(F.conv1d(x, k)), [(32, 3, 20), (4, 3, 3)]),
    "three spatial axes": (lambda x, k: F.relu(F.conv3d(x, k)) * 2, [(32, 2, 6, 6, 6), (4, 2, 2, 2, 2)]),
    "groups": (lambda x, k: F.conv2d(x, k, groups=2).abs(), [(32, 4, 6, 6), (6, 2, 3, 3)]),
    "transposed": (lambda x, k: F.conv_transpose2d(x, k, stride=2).exp(), [(16, 4, 6, 6), (4, 3, 3, 3)]),
    "reduction over channels": (lambda x, k: F.conv2d(x, k).softmax(1), [(32, 4, 6, 6), (6, 4, 3, 3)]),
    "reduction that keeps channels": (lambda x, k: F.conv2d(x, k).amax(2), [(32, 4, 6, 6), (6, 4, 3, 3)]),
    "reduction over the batch": (lambda x, k: F.conv2d(x, k).sum(0), [(32, 4, 6, 6), (6, 4, 3, 3)]),
    "other reading": (lambda x, k: F.conv2d(x, k).transpose(1, 2).cumsum(1), [(32, 4, 6, 6), (6, 4, 3, 3)]),
    "positions": (lambda x, k: _places(F.conv2d(x, k)), [(32, 4, 6, 6), (6, 4, 3, 3)]),
    "channels by group": (lambda x, k: F.group_norm(F.conv2d(x, k), 3), [(32, 4, 6, 6), (6, 4, 3, 3)]),
    "pixels to channels": (lambda x, k: F.pixel_shuffle(F.conv2d(x, k), 2), [(32, 4, 6, 6), (8, 4, 3, 3)]),
    "average windows": (lambda x, k: F.avg_pool2d(F.conv2d(x, k), 2), [(32, 4, 6, 6), (6, 4, 3, 3)]),
    "a mask": (lambda x, k: torch.where(F.conv2d(x, k) > 0, k.sum(), 0.5), [(32, 4, 6, 6), (6, 4, 3, 3)]),
    "complex constants": (
        lambda x, k: torch.view_as_real(F.conv2d(x, k) * torch.full((32, 6, 4, 4), 2 + 1j)),
        [(32, 4, 6, 6), (6, 4, 3, 3)],
    ),
    "pointwise": (lambda x, k: F.conv2d(x, k).relu(), [(32, 8, 5, 6), (6, 8, 1, 1)]),
    "pointwise, strides": (lambda x, k: F.conv2d(x, k, stride=(2, 3)), [(32, 8, 5, 6), (6, 8, 1, 1)]),
    "pointwise, padding": (lambda x, k: F.conv2d(x, k, padding=1), [(32, 8, 5, 6), (6, 8, 1, 1)]),
    "pointwise, groups": (lambda x, k: F.conv2d(x, k, groups=2), [(32, 8, 5, 6), (6, 4, 1, 1)]),
    "pointwise, transposed": (lambda x, k: F.conv_transpose2d(x, k), [(32, 8, 5, 6), (8, 6, 1, 1)]),
    "pointwise, one axis": (lambda x, k: F.conv1d(x, k), [(32, 8, 9), (6, 8, 1)]),
    "pointwise, three axes": (lambda x, k: F.conv3d(x, k), [(32, 8, 3, 4, 5), (6, 8, 1, 1, 1)]),
    "another program's order": (
        lambda x, k: F.conv2d(x, k).select(1, 0).relu(),
        [(32, 4, 6, 6), (6, 4, 3, 3)],
    ),
}


def _places(x: torch.Tensor) -> torch.Tensor:
    value, place = F.max_pool2d(x, 2, return_indices=True)
    return value + place


@pytest.mark.kept("positions", "groups", "transposed", "reduction over channels", "another program's order")
@pytest.mark.parametrize("name", CASES)
def test_what_lies_around_a_convolution(name: str) -> None:
    torch.manual_seed(0)
    function, shapes = CASES[name]
    args = [torch.randn(shape) for shape in shapes]
    found = export(_Module(function), tuple(args))(*args)
    torch.testing.assert_close(found, function(*args), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("stride", [1, 2])
def test_a_pointwise_convolution_is_a_product_with_its_kernel_as_it_lies(stride: int) -> None:
    text = assigned(nn.Conv2d(8, 6, 1, stride), torch.randn(32, 8, 5, 6))
    assert text.count("stablehlo.dot_general") == 1
    assert "stablehlo.convolution" not in text
    assert "6x8x1x1" not in transposes(text)


def test_a_pointwise_convolution_with_padding_stays_one() -> None:
    text = assigned(nn.Conv2d(8, 6, 1, padding=1), torch.randn(32, 8, 5, 6))
    assert text.count("stablehlo.convolution") == 1


def test_a_module_without_convolutions_is_left_alone() -> None:
    program = build_program(nn.Linear(4, 4), (torch.randn(2, 4),))
    portable = program.module.serialize(hlo.resolve_version("current"))
    assert modules.read(portable, rewrite=cpu.rewrite) == modules.read(portable)


def test_operations_of_chlo_stay_what_they_are() -> None:
    """XLA's own implementations of them are more accurate than the decompositions in portable artifacts."""
    conv = nn.Conv2d(8, 8, 3)
    text = assigned(lambda x: torch.special.erf(conv(x)), torch.randn(2, 8, 6, 6))
    assert "chlo.erf" in text
    assert "composite" not in text


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.lstm = nn.Conv1d(3, 5, 3), nn.LSTM(5, 4, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.lstm(self.conv(x).relu().transpose(1, 2))[0]


def test_a_loop_reads_what_a_convolution_made() -> None:
    torch.manual_seed(0)
    model, x = Recurrent().eval(), torch.randn(32, 3, 12)
    torch.testing.assert_close(export(model, (x,))(x), model(x), rtol=1e-4, atol=1e-5)
