"""Engines that users define: how they are named, and how a simulated one runs programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy
import pytest

from torchstone.errors import ConfigError, UnsupportedByEngine
from torchstone.runtime import SimulatedEngine, get_engine


class Adder(SimulatedEngine):
    name = "adder"
    platform = "numpy"
    kernels: ClassVar[dict[str, Any]] = {
        "add": lambda op, a, b: a + b,
        "compare": lambda op, a, b: {"LT": numpy.less, "GT": numpy.greater}[op.comparison_direction](a, b),
        "transpose": lambda op, x: x.transpose(op.permutation),
        "pad": lambda op, x, value: numpy.pad(
            x, list(zip(op.edge_padding_low, op.edge_padding_high, strict=True)), constant_values=value
        ),
    }


HERE = f"{__name__}:Adder"


def run(engine: str, text: str, *arguments: Any) -> list[Any]:
    return [one.to_numpy() for one in get_engine(engine).compile(text)(*arguments)]


def test_an_engine_by_name() -> None:
    assert isinstance(get_engine(HERE), Adder)
    assert get_engine(HERE) is get_engine(HERE)


@pytest.mark.parametrize("engine", ["reference", "jax", HERE])
def test_a_result_without_dimensions_stays_one(engine: str) -> None:
    program = "func.func @main(%a: tensor<f64>) -> tensor<f64> {\n%b = stablehlo.add %a, %a : tensor<f64>\n"
    (found,) = run(engine, program + "return %b : tensor<f64>\n}", numpy.array(1.5))
    numpy.testing.assert_array_equal(found, numpy.array(3.0), strict=True)


@pytest.mark.parametrize("text", ["def f(:\n", "import sys\nsys.exit(0)\n", "1 / 0\n"])
def test_a_module_that_cannot_be_imported(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "some_chip.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError, match=r"'some_chip:Chip' cannot be loaded: \w+"):
        get_engine("some_chip:Chip")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("fast", "unknown engine 'fast'\n  next: engines: pjrt, reference, iree, jax, or module:factory"),
        (
            "no_such_module:Chip",
            r"'no_such_module:Chip' cannot be loaded: ModuleNotFoundError: No module named",
        ),
        ("math:Chip", r"cannot be loaded: .*\n  next: name a class or function as module:factory"),
        (
            "builtins:dict",
            r"makes a dict, which is not an engine\n  next: an engine has name, platform, compile",
        ),
    ],
)
def test_a_name_that_names_no_engine(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        get_engine(name)


CONSTANTS = {
    "dense<[1.5, 0x7FC0]> : tensor<2xbf16>": "tensor<2xbf16>",
    "dense<0xFF80> : tensor<2xbf16>": "tensor<2xbf16>",
    "dense<[1.5, -0.0]> : tensor<2xf16>": "tensor<2xf16>",
    "dense<(1.0, 0x7FC00000)> : tensor<2xcomplex<f32>>": "tensor<2xcomplex<f32>>",
    "dense<[(1.0, 2.0), (3.0e+00, -4.0)]> : tensor<2xcomplex<f64>>": "tensor<2xcomplex<f64>>",
    "dense<[1.0, 2.0]> : tensor<2xf8E4M3FN>": "tensor<2xf8E4M3FN>",
    "dense<[true, false]> : tensor<2xi1>": "tensor<2xi1>",
    "dense<true> : tensor<2xi1>": "tensor<2xi1>",
    "dense<[1, 255]> : tensor<2xui8>": "tensor<2xui8>",
    "dense<[[1, -2], [3, 4]]> : tensor<2x2xi64>": "tensor<2x2xi64>",
    "dense<> : tensor<0xf32>": "tensor<0xf32>",
    "dense<> : tensor<0xcomplex<f32>>": "tensor<0xcomplex<f32>>",
}


@pytest.mark.parametrize("value", CONSTANTS)
def test_constants_of_every_kind(value: str) -> None:
    kind = CONSTANTS[value]
    text = f"func.func @main() -> {kind} {{\n%r = stablehlo.constant {value}\nreturn %r : {kind}\n}}"
    (found,), (expected,) = run(HERE, text), run("pjrt", text)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert found.tobytes() == expected.tobytes()


CONTROL = """
func.func private @twice(%x: tensor<2xi32>) -> tensor<2xi32> {
  %r = stablehlo.add %x, %x : tensor<2xi32>
  return %r : tensor<2xi32>
}
func.func @main(%x: tensor<2xi32>, %n: tensor<i32>) -> (tensor<2xi32>, tensor<2xi32>, tensor<2xi32>) {
  %one = stablehlo.constant dense<1> : tensor<i32>
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %composed = stablehlo.composite "my.twice" %x {decomposition = @twice} : (tensor<2xi32>) -> tensor<2xi32>
  %called = func.call @twice(%composed) : (tensor<2xi32>) -> tensor<2xi32>
  %i, %summed = stablehlo.while(%i = %zero, %sum = %x) : tensor<i32>, tensor<2xi32>
  cond {
    %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %next = stablehlo.add %i, %one : tensor<i32>
    %more = stablehlo.add %sum, %x : tensor<2xi32>
    stablehlo.return %next, %more : tensor<i32>, tensor<2xi32>
  }
  %big = stablehlo.compare GT, %n, %one : (tensor<i32>, tensor<i32>) -> tensor<i1>
  %chosen = "stablehlo.if"(%big) ({
    stablehlo.return %x : tensor<2xi32>
  }, {
    stablehlo.return %called : tensor<2xi32>
  }) : (tensor<i1>) -> tensor<2xi32>
  %case = "stablehlo.case"(%n) ({
    stablehlo.return %x : tensor<2xi32>
  }, {
    stablehlo.return %chosen : tensor<2xi32>
  }) : (tensor<i32>) -> tensor<2xi32>
  %r = stablehlo.add %called, %chosen : tensor<2xi32>
  return %r, %summed, %case : tensor<2xi32>, tensor<2xi32>, tensor<2xi32>
}
"""


@pytest.mark.parametrize("count", [-1, 0, 1, 3])
def test_control_flow_calls_and_composites(count: int) -> None:
    arguments = numpy.array([3, -4], numpy.int32), numpy.int32(count)
    found, expected = run(HERE, CONTROL, *arguments), run("pjrt", CONTROL, *arguments)
    assert [one.tolist() for one in found] == [one.tolist() for one in expected]


def test_results_keep_their_shape_and_need_not_be_contiguous() -> None:
    text = """func.func @main(%x: tensor<2x3xf32>, %n: tensor<f32>) -> (tensor<3x2xf32>, tensor<f32>) {
  %t = stablehlo.transpose %x, dims = [1, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>
  %m = stablehlo.add %n, %n : tensor<f32>
  return %t, %m : tensor<3x2xf32>, tensor<f32>
}"""
    x = numpy.arange(6, dtype=numpy.float32).reshape(2, 3)
    turned, number = run(HERE, text, x, numpy.float32(2))
    assert turned.tolist() == x.T.tolist()
    assert (number.shape, number.item()) == ((), 4)


def test_attributes_are_plain_python() -> None:
    text = """func.func @main(%x: tensor<2x1xf32>, %v: tensor<f32>) -> tensor<2x3xf32> {
  %t = stablehlo.transpose %x, dims = [1, 0] : (tensor<2x1xf32>) -> tensor<1x2xf32>
  %r = stablehlo.pad %t, %v, low = [0, 1], high = [1, 0], interior = [0, 0]
    : (tensor<1x2xf32>, tensor<f32>) -> tensor<2x3xf32>
  return %r : tensor<2x3xf32>
}"""
    arguments = numpy.array([[1], [2]], numpy.float32), numpy.float32(7)
    assert run(HERE, text, *arguments)[0].tolist() == run("pjrt", text, *arguments)[0].tolist()


def test_an_operation_without_a_kernel() -> None:
    text = """func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %a = stablehlo.add %x, %x : tensor<2xf32>
  %b = stablehlo.sine %a : tensor<2xf32>
  %r = stablehlo.cosine %b : tensor<2xf32>
  return %r : tensor<2xf32>
}"""
    message = (
        r"the adder engine cannot run 2 operation\(s\) of the program:\n  cosine: it has no kernel\n  sine"
    )
    with pytest.raises(UnsupportedByEngine, match=message) as caught:
        get_engine(HERE).compile(text)
    assert list(caught.value.operations) == ["cosine", "sine"]


def test_an_attribute_that_is_not_there() -> None:
    class Wrong(Adder):
        kernels: ClassVar[dict[str, Any]] = {"add": lambda op, a, b: op.dimension}

    text = """func.func @main(%x: tensor<f32>) -> tensor<f32> {
  %r = stablehlo.add %x, %x : tensor<f32>
  return %r : tensor<f32>
}"""
    with pytest.raises(AttributeError, match=r"stablehlo\.add has no attribute 'dimension' here"):
        Wrong().compile(text)(numpy.float32(1))
