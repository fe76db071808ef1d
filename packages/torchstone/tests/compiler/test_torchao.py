"""Networks that torchao has quantized: its PT2E flow, and weights alone, through the artifact.

The integers that a network computes equal those of PyTorch, bit for bit; what leaves it in
floating point agrees within the usual tolerance.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.fx import GraphModule, Interpreter

import torchstone

pytest.importorskip("torchao", reason="the extra torchstone[quant] is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")  # torchao's own, about PyTorch and its extensions

from torchao import quantization as ao  # noqa: E402
from torchao.quantization.granularity import PerGroup  # noqa: E402
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e  # noqa: E402
from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86  # noqa: E402


class Perceptron(nn.Sequential):
    example = (torch.randn(4, 32, generator=torch.Generator().manual_seed(0)),)

    def __init__(self) -> None:
        super().__init__(nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 4))


class Convolutional(nn.Module):
    example = (torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0)),)

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.second = nn.Conv2d(8, 8, 3, padding=1)
        self.pool, self.head = nn.MaxPool2d(2), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(self.first(x))
        return self.head(torch.relu(self.second(x) + x).mean((2, 3)))


class Integers(nn.Module):
    """A converted network's output, and all integers that it quantizes to on the way."""

    def __init__(self, converted: GraphModule) -> None:
        super().__init__()
        self.converted = converted

    def forward(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        found: list[Tensor] = []

        class Watching(Interpreter):
            def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
                result = super().call_function(target, args, kwargs)
                if str(target).startswith("quantized_decomposed.quantize"):
                    found.append(result)
                return result

        return Watching(self.converted).run(x), found


def converted(network: nn.Module, example: tuple[Tensor, ...], *, dynamic: bool) -> GraphModule:
    settings = x86.get_default_x86_inductor_quantization_config(is_dynamic=dynamic)
    exported = torch.export.export(network.eval(), example).module()
    prepared = prepare_pt2e(exported, x86.X86InductorQuantizer().set_global(settings))
    for factor in (1.0, 2.0):  # calibration
        prepared(*(tensor * factor for tensor in example))
    return convert_pt2e(prepared)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("kind", [Convolutional, pytest.param(Perceptron, marks=pytest.mark.conformance)])
def test_exported_quantization(kind: Any, dynamic: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = Integers(converted(kind(), kind.example, dynamic=dynamic))
    with torch.no_grad():
        expected, integers = network(*kind.example)
        program = torchstone.export(network, kind.example)
        found, same = torchstone.load(program.save(tmp_path / "quantized.stone"))(*kind.example)
    assert len(integers) >= 2
    for have, want in zip(same, integers, strict=True):
        assert want.dtype in (torch.uint8, torch.int8)
        assert torch.equal(torch.as_tensor(have), want)
    torch.testing.assert_close(torch.as_tensor(found), expected)


INT4 = {"weight_dtype": torch.int4}
WEIGHTS: dict[str, Callable[[], Any]] = {
    "int8 and activations": ao.Int8DynamicActivationInt8WeightConfig,
    "int4 in groups": lambda: ao.IntxWeightOnlyConfig(**INT4, granularity=PerGroup(16)),
}
MORE_WEIGHTS: dict[str, Callable[[], Any]] = {
    "int8": ao.Int8WeightOnlyConfig,
    "int4 in groups, int8 activations": lambda: ao.Int8DynamicActivationIntxWeightConfig(
        **INT4, weight_granularity=PerGroup(16)
    ),
}


@pytest.mark.parametrize(
    "settings",
    [pytest.param(make, id=name) for name, make in WEIGHTS.items()]
    + [pytest.param(make, id=name, marks=pytest.mark.conformance) for name, make in MORE_WEIGHTS.items()],
)
def test_quantized_weights(settings: Callable[[], Any]) -> None:
    torch.manual_seed(0)
    network, example = Perceptron().eval(), Perceptron.example
    quantized = copy.deepcopy(network)
    ao.quantize_(quantized, settings())
    with torch.no_grad():
        program = torchstone.export(quantized, example)
        torch.testing.assert_close(program(*example), quantized(*example))
    weights = [spec for spec in program.signature.inputs if len(spec.shape) == 2 and spec.kind != "input"]
    assert {spec.dtype.name for spec in weights if tuple(spec.shape) in {(16, 32), (4, 16)}} == {"int8"}
