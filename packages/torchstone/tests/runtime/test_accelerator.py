"""A sample on whatever PJRT device is here besides the CPU (`make test-accelerator`)."""

from __future__ import annotations

import numpy
import pytest

from torchstone.config import config
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
