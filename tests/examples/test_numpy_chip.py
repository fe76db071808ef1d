"""Compares kernels of the simulated chip with XLA, on forms that models seldom use."""

from __future__ import annotations

from pathlib import Path

import numpy
import pytest

from torchstone.runtime import get_engine

ADDED = """({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %sum = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %sum : tensor<f32>
  })"""
PROGRAMS = {
    "pad that cuts and spreads": """func.func @main(%x: tensor<3x4xf32>, %v: tensor<f32>) -> tensor<4x8xf32> {
  %r = stablehlo.pad %x, %v, low = [-1, 2], high = [2, -1], interior = [0, 1]
    : (tensor<3x4xf32>, tensor<f32>) -> tensor<4x8xf32>
  return %r : tensor<4x8xf32>
}""",
    "transposing broadcast": """func.func @main(%x: tensor<1x3xf32>) -> tensor<3x2x4xf32> {
  %r = stablehlo.broadcast_in_dim %x, dims = [2, 0] : (tensor<1x3xf32>) -> tensor<3x2x4xf32>
  return %r : tensor<3x2x4xf32>
}""",
    "slices of a window outside": """func.func @main(%x: tensor<4x5xf32>, %n: tensor<2x2xf32>)
  -> tensor<4x5xf32> {
  %i = stablehlo.constant dense<3> : tensor<i32>
  %j = stablehlo.constant dense<-2> : tensor<i32>
  %s = stablehlo.dynamic_slice %x, %i, %j, sizes = [2, 2]
    : (tensor<4x5xf32>, tensor<i32>, tensor<i32>) -> tensor<2x2xf32>
  %t = stablehlo.add %s, %n : tensor<2x2xf32>
  %r = stablehlo.dynamic_update_slice %x, %t, %j, %i
    : (tensor<4x5xf32>, tensor<2x2xf32>, tensor<i32>, tensor<i32>) -> tensor<4x5xf32>
  return %r : tensor<4x5xf32>
}""",
    "gather with batches and clamped starts": """func.func @main(%x: tensor<2x5x3xf32>) -> tensor<2x4x2xf32> {
  %i = stablehlo.constant dense<[[[0, 9, 2, -1]], [[4, 1, 1, 3]]]> : tensor<2x1x4xi64>
  %r = "stablehlo.gather"(%x, %i) {
    dimension_numbers = #stablehlo.gather<offset_dims = [2], collapsed_slice_dims = [1],
      operand_batching_dims = [0], start_indices_batching_dims = [0], start_index_map = [1],
      index_vector_dim = 1>,
    slice_sizes = array<i64: 1, 1, 2>
  } : (tensor<2x5x3xf32>, tensor<2x1x4xi64>) -> tensor<2x4x2xf32>
  return %r : tensor<2x4x2xf32>
}""",
    "scatter that drops what is outside": f"""func.func @main(%x: tensor<5x3xf32>, %u: tensor<4x3xf32>)
  -> tensor<5x3xf32> {{
  %i = stablehlo.constant dense<[0, 7, 2, 2]> : tensor<4xi64>
  %r = "stablehlo.scatter"(%x, %i, %u) {ADDED} {{
    scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0],
      scatter_dims_to_operand_dims = [0], index_vector_dim = 1>
  }} : (tensor<5x3xf32>, tensor<4xi64>, tensor<4x3xf32>) -> tensor<5x3xf32>
  return %r : tensor<5x3xf32>
}}""",
    "convolution that spreads and reverses": """func.func @main(%x: tensor<2x5x4xf32>, %w: tensor<3x2x6xf32>)
  -> tensor<2x5x6xf32> {
  %r = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f],
    window = {stride = [2], pad = [[1, 3]], lhs_dilate = [2], rhs_dilate = [2], reverse = [true]}
    {batch_group_count = 1 : i64, feature_group_count = 2 : i64}
    : (tensor<2x5x4xf32>, tensor<3x2x6xf32>) -> tensor<2x5x6xf32>
  return %r : tensor<2x5x6xf32>
}""",
    "convolution in groups of a batch": """func.func @main(%x: tensor<4x2x5xf32>, %w: tensor<6x2x3xf32>)
  -> tensor<2x6x3xf32> {
  %r = stablehlo.convolution(%x, %w) dim_numbers = [b, f, 0]x[o, i, 0]->[b, f, 0], window = {}
    {batch_group_count = 2 : i64, feature_group_count = 1 : i64}
    : (tensor<4x2x5xf32>, tensor<6x2x3xf32>) -> tensor<2x6x3xf32>
  return %r : tensor<2x6x3xf32>
}""",
    "product over batches and two axes": """func.func @main(%a: tensor<2x3x4x5xf32>, %b: tensor<5x2x4xf32>)
  -> tensor<2x3xf32> {
  %r = stablehlo.dot_general %a, %b, batching_dims = [0] x [1], contracting_dims = [2, 3] x [2, 0]
    : (tensor<2x3x4x5xf32>, tensor<5x2x4xf32>) -> tensor<2x3xf32>
  return %r : tensor<2x3xf32>
}""",
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_kernel_agrees_with_xla(program: str, repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(repo / "examples" / "bring_up")
    chip, xla = (get_engine(name).compile(PROGRAMS[program]) for name in ("numpy_chip:NumpyChip", "pjrt"))
    random = numpy.random.default_rng(0)
    arguments = [random.standard_normal(one.shape).astype(numpy.float32) for one in chip.inputs]
    (found,), (expected,) = chip(*arguments), xla(*arguments)
    numpy.testing.assert_allclose(found.to_numpy(), expected.to_numpy(), rtol=1e-5, atol=1e-6)
