"""Sums of many slices that several operations read are computed once on XLA's CPU."""

from __future__ import annotations

import numpy
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from cpu_modules import rewritten
from torchstone import export, hlo
from torchstone.compiler.program import build_program
from torchstone.config import override
from torchstone.runtime.pjrt import PjrtEngine

SIGNAL, FRAMED = "tensor<8x64xf32>", "tensor<8x79xf32>"


def shifted(count: int, end: str, results: str = SIGNAL) -> str:
    """Return a module that adds ``count`` scaled slices of its argument and applies ``end`` to the sum."""
    lines, total = [], "%none"
    for at in range(count):
        lines += [
            f"%s{at} = stablehlo.slice %x [0:8, {at}:{at + 64}] : ({FRAMED}) -> {SIGNAL}",
            f"%c{at} = stablehlo.constant dense<{at + 1}.0> : {SIGNAL}",
            f"%p{at} = stablehlo.multiply %s{at}, %c{at} : {SIGNAL}",
            f"%t{at} = stablehlo.add {total}, %p{at} : {SIGNAL}",
        ]
        total = f"%t{at}"
    zero = f"%none = stablehlo.constant dense<0.0> : {SIGNAL}"
    body = "\n".join([zero, *lines, end.replace("%sum", total)])
    return f"func.func @main(%x: {FRAMED}) -> ({results}) {{\n{body}\n}}"


TWICE = f"""%a = stablehlo.tanh %sum : {SIGNAL}
%b = stablehlo.multiply %a, %sum : {SIGNAL}
return %b : {SIGNAL}"""
ONCE = f"""%a = stablehlo.tanh %sum : {SIGNAL}
return %a : {SIGNAL}"""
ALSO_RETURNED = f"""%a = stablehlo.tanh %sum : {SIGNAL}
return %a, %sum : {SIGNAL}, {SIGNAL}"""
TURNED = f"""%t = stablehlo.transpose %sum, dims = [1, 0] : ({SIGNAL}) -> tensor<64x8xf32>
%a = stablehlo.tanh %t : tensor<64x8xf32>
%b = stablehlo.multiply %a, %t : tensor<64x8xf32>
return %b : tensor<64x8xf32>"""


@pytest.mark.parametrize(
    ("count", "end", "results", "functions"),
    [
        (8, TWICE, SIGNAL, 1),
        (7, TWICE, SIGNAL, 0),
        (16, ONCE, SIGNAL, 0),
        (16, ALSO_RETURNED, f"{SIGNAL}, {SIGNAL}", 1),
        (16, TURNED, "tensor<64x8xf32>", 1),
    ],
    ids=["twice", "few slices", "once", "returned", "transposed"],
)
def test_what_several_operations_read_gets_a_function(
    count: int, end: str, results: str, functions: int
) -> None:
    module = shifted(count, end, results)
    text = rewritten(module)
    assert text.count("func.func private @torchstone_computed_once") == text.count("call @") == functions
    assert text.count("stablehlo.slice") == count
    x = numpy.random.default_rng(0).standard_normal((8, 79), dtype=numpy.float32)
    total = sum(x[:, at : at + 64].astype(float) * (at + 1) for at in range(count))
    found = PjrtEngine().compile(module)(x)[0].to_numpy()
    expected = numpy.tanh(total) * (total if end in (TWICE, TURNED) else 1)
    numpy.testing.assert_allclose(found, expected.T if end == TURNED else expected, rtol=1e-5, atol=1e-4)


def test_one_slice_that_is_read_often_is_not_many() -> None:
    """Computing a polynomial of one slice again costs less than storing its result."""
    steps = [f"%h0 = stablehlo.slice %x [0:8, 0:64] : ({FRAMED}) -> {SIGNAL}"]
    steps += [f"%h{i + 1} = stablehlo.multiply %h{i}, %h0 : {SIGNAL}" for i in range(12)]
    steps += [f"%far{i} = stablehlo.slice %x [0:8, {i}:{i + 64}] : ({FRAMED}) -> {SIGNAL}" for i in range(9)]
    end = "\n".join([*steps, TWICE.replace("%sum", "%h12")])
    text = rewritten(f"func.func @main(%x: {FRAMED}) -> ({SIGNAL}) {{\n{end}\n}}")
    assert "call @" not in text


class Block(nn.Module):
    """A depthwise convolution and layer norm over its channels, as in ConvNeXt."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm, self.mixed = nn.LayerNorm(channels), nn.Linear(channels, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        return x + F.gelu(self.mixed(y)).permute(0, 3, 1, 2)


def test_xla_keeps_the_function() -> None:
    """Each of 49 slices of signal and kernel is read once; without the function, it is read four times."""
    x = torch.randn(2, 8, 10, 10)
    module = build_program(Block(8).eval(), (x,)).module.serialize(hlo.resolve_version("current"))
    with override(cache=False):
        program = PjrtEngine().compile(module)
    assert program.compiled.text.count(" slice(") == 2 * 49


@pytest.mark.conformance
def test_depthwise_convolutions_and_their_gradients() -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(Block(8), Block(8)), torch.randn(2, 8, 10, 10)
    torch.testing.assert_close(export(model.eval(), (x,))(x), model(x), rtol=1e-5, atol=1e-5)
    torch._dynamo.reset()
    torch.compile(model, backend="torchstone", fullgraph=True)(x).square().sum().backward()
    found = [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
    model.zero_grad()
    model(x).square().sum().backward()
    torch.testing.assert_close(found, [one.grad for one in model.parameters()], rtol=1e-4, atol=1e-3)
