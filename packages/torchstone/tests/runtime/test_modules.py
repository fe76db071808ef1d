"""What engines accept as a module, and refinement of dynamic shapes."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy
import pytest
from jax.extend import mlir
from jax.interpreters.mlir import make_ir_context, module_to_bytecode
from jaxlib.mlir import ir

from torchstone.errors import EngineError, InputMismatch, UnsupportedDtype
from torchstone.runtime import get_engine, refine

COMPOSITE = """module {
  func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
    %0 = stablehlo.composite "example.twice" %x {decomposition = @twice, version = 1 : i32}
      : (tensor<4xf32>) -> tensor<4xf32>
    %1 = chlo.sinh %0 : tensor<4xf32> -> tensor<4xf32>
    return %1 : tensor<4xf32>
  }
  func.func private @twice(%x: tensor<4xf32>) -> tensor<4xf32> {
    %0 = stablehlo.add %x, %x : tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}"""

DYNAMIC = """func.func @main(%x: tensor<?x4xf32>, %y: tensor<4xf32>) -> tensor<?x4xf32> {
  %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x4xf32>) -> tensor<i32>
  %one = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
  %four = stablehlo.constant dense<4> : tensor<1xi32>
  %shape = stablehlo.concatenate %one, %four, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  %wide = stablehlo.dynamic_broadcast_in_dim %y, %shape, dims = [1]
    : (tensor<4xf32>, tensor<2xi32>) -> tensor<?x4xf32>
  %sum = stablehlo.add %x, %wide : tensor<?x4xf32>
  return %sum : tensor<?x4xf32>
}"""


def as_text(text: str) -> str:
    return text


def as_text_bytes(text: str) -> bytes:
    return text.encode()


def as_bytecode(text: str) -> bytes:
    with make_ir_context():
        return module_to_bytecode(ir.Module.parse(text))


def as_portable(text: str) -> bytes:
    with make_ir_context():
        return mlir.serialize_portable_artifact(ir.Module.parse(text), "1.0.0")


@pytest.mark.parametrize("form", [as_text, as_text_bytes, as_bytecode, as_portable])
@pytest.mark.parametrize("engine", ["pjrt", "reference"])
def test_composites_and_chlo_in_every_form(engine: str, form: Callable[[str], bytes | str]) -> None:
    x = numpy.linspace(-1, 1, 4, dtype=numpy.float32)
    (result,) = get_engine(engine).compile(form(COMPOSITE))(x)
    numpy.testing.assert_allclose(result.to_numpy(), numpy.sinh(2 * x), rtol=1e-6)


@pytest.mark.parametrize("engine", ["pjrt", "reference"])
@pytest.mark.parametrize(
    ("module", "message"),
    [
        (b"", "has no function @main"),
        ("module {}", "has no function @main"),
        (b"\x89PNG not a module", "these 17 bytes are not a StableHLO module"),
        ("func.func @main(", "these 16 bytes are not a StableHLO module"),
        (as_portable(COMPOSITE)[:-40], "are not a StableHLO module"),
        (
            "func.func @main(%x: i32) { return }",
            "argument or result of type i32, which is not a ranked tensor",
        ),
        (DYNAMIC, "argument 0 of @main has a dynamic shape: tensor<?x4xf32>\n  next: specialise"),
    ],
)
def test_bad_modules(engine: str, module: bytes | str, message: str) -> None:
    with pytest.raises(EngineError, match=re.escape(message)):
        get_engine(engine).compile(module)


def test_dtype_without_a_counterpart() -> None:
    with pytest.raises(UnsupportedDtype, match="i2"):
        get_engine("pjrt").compile("func.func @main(%x: tensor<2xi2>) { return }")


def test_program_that_xla_refuses() -> None:
    text = """func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
      %0 = stablehlo.custom_call @nowhere(%x) : (tensor<2xf32>) -> tensor<2xf32>
      return %0 : tensor<2xf32>
    }"""
    with pytest.raises(EngineError, match=r"(?s)XLA cannot compile the program for cpu:0: .*nowhere"):
        get_engine("pjrt").compile(text)


@pytest.mark.parametrize("form", [as_text, as_bytecode, as_portable])
@pytest.mark.parametrize("rows", [1, 3, 0])
def test_refine(form: Callable[[str], bytes | str], rows: int) -> None:
    x, y = numpy.ones((rows, 4), numpy.float32), numpy.arange(4, dtype=numpy.float32)
    program = get_engine("pjrt").compile(refine(form(DYNAMIC), [x.shape, y.shape]))
    assert program.outputs[0].shape == (rows, 4)
    numpy.testing.assert_array_equal(program(x, y)[0].to_numpy(), x + y)


def test_refine_inside_a_composite() -> None:
    """Two composites of different shapes use the same decomposition."""
    text = """module {
      func.func public @main(%x: tensor<?xf32>, %y: tensor<?xf32>) -> (tensor<?xf32>, tensor<?xf32>) {
        %0 = stablehlo.composite "example.sinh2" %x {decomposition = @sinh2}
          : (tensor<?xf32>) -> tensor<?xf32>
        %1 = stablehlo.composite "example.sinh2" %y {decomposition = @sinh2}
          : (tensor<?xf32>) -> tensor<?xf32>
        return %0, %1 : tensor<?xf32>, tensor<?xf32>
      }
      func.func private @sinh2(%x: tensor<?xf32>) -> tensor<?xf32> {
        %0 = chlo.sinh %x : tensor<?xf32> -> tensor<?xf32>
        %1 = stablehlo.multiply %0, %0 : tensor<?xf32>
        return %1 : tensor<?xf32>
      }
    }"""
    x, y = numpy.ones(3, numpy.float32), numpy.ones(5, numpy.float32)
    results = get_engine("pjrt").compile(refine(text, [(3,), (5,)]))(x, y)
    for result, argument in zip(results, (x, y), strict=True):
        numpy.testing.assert_allclose(result.to_numpy(), numpy.sinh(argument) ** 2, rtol=1e-6)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ([(3, 4)], "@main takes 2 argument(s), 1 shape(s) were given"),
        ([(3, 5), (4,)], "argument 0 must have shape [?, 4], found [3, 5]"),
        ([(3,), (4,)], "argument 0 must have shape [?, 4], found [3]"),
        ([(3, 4), (5,)], "argument 1 must have shape [4], found [5]"),
    ],
)
def test_refine_for_shapes_that_do_not_fit(shapes: list[tuple[int, ...]], message: str) -> None:
    with pytest.raises(InputMismatch, match=re.escape(message)):
        refine(DYNAMIC, shapes)


def test_refine_where_a_shape_depends_on_values() -> None:
    text = """func.func @main(%x: tensor<?xf32>, %n: tensor<1xi32>) -> tensor<?xf32> {
      %z = stablehlo.constant dense<0.0> : tensor<f32>
      %0 = stablehlo.dynamic_broadcast_in_dim %z, %n, dims = []
        : (tensor<f32>, tensor<1xi32>) -> tensor<?xf32>
      return %0 : tensor<?xf32>
    }"""
    with pytest.raises(EngineError, match="cannot be refined to static shapes"):
        refine(text, [(3,), (1,)])
