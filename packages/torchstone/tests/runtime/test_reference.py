"""The reference engine: what it computes, what it does not support, and how its child process fails."""

from __future__ import annotations

import os
import re
import signal
import time
from typing import Any

import ml_dtypes
import numpy
import pytest

from interpreter_samples import SAMPLES
from torchstone import dtypes
from torchstone.config import override
from torchstone.dtypes import DType
from torchstone.errors import EngineError
from torchstone.runtime import Executable, get_engine, reference
from torchstone.runtime.reference import UNSUPPORTED_OPERATIONS, ReferenceEngine

UNSUPPORTED = sorted(UNSUPPORTED_OPERATIONS)
SUPPORTED = sorted(SAMPLES.keys() - UNSUPPORTED_OPERATIONS.keys())
ONLY_IN_THE_INTERPRETER = {"stablehlo.dynamic_conv": "XLA translates no dynamic convolution"}

STALLING = """func.func @main(%n: tensor<i64>) -> tensor<i64> {
  %one = stablehlo.constant dense<1> : tensor<i64>
  %zero = stablehlo.constant dense<0> : tensor<i64>
  %r = stablehlo.while(%i = %zero) : tensor<i64>
  cond {
    %c = stablehlo.compare LT, %i, %n : (tensor<i64>, tensor<i64>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %next = stablehlo.add %i, %one : tensor<i64>
    stablehlo.return %next : tensor<i64>
  }
  return %r : tensor<i64>
}"""


def text_of(operation: str) -> str:
    arguments, result, body = SAMPLES[operation]
    parameters = ", ".join(f"%arg{position}: {type_}" for position, type_ in enumerate(arguments))
    return f"func.func @main({parameters}) -> {result} {{\n{body}\nreturn %r : {result}\n}}"


WHOLE_NUMBERS = {"chlo.polygamma"}
OPEN_UNIT_INTERVAL = {"chlo.asin", "chlo.erf_inv"}


def arguments_of(program: Executable, operation: str) -> list[numpy.ndarray[Any, Any]]:
    """Numbers in the operation's domain."""
    low, high = 2.0, 2.75
    if operation in OPEN_UNIT_INTERVAL:
        low, high = 0.125, 0.875
    elif operation in WHOLE_NUMBERS:
        low, high = 2.0, 5.0
    sizes = [int(numpy.prod(spec.shape)) for spec in program.inputs]
    return [
        numpy.linspace(low, high, size).reshape(spec.shape).astype(spec.dtype.numpy)
        for size, spec in zip(sizes, program.inputs, strict=True)
    ]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("operation", SUPPORTED)
def test_agrees_with_xla(operation: str) -> None:
    program = get_engine("reference").compile(text_of(operation))
    arguments = arguments_of(program, operation)
    (found,) = program(*arguments)
    if operation in ONLY_IN_THE_INTERPRETER:
        with pytest.raises(EngineError, match=operation):
            get_engine("pjrt").compile(text_of(operation))
        return
    (expected,) = get_engine("pjrt").compile(text_of(operation))(*arguments)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    assert not numpy.isnan(found.to_numpy()).any()
    numpy.testing.assert_allclose(found.to_numpy(), expected.to_numpy(), rtol=1.3e-6, atol=1e-5)


def test_scatter_leaves_its_operand_alone() -> None:
    """The interpreter's own scatter writes into its operand."""
    text = """func.func @main(%i: tensor<1x1xi64>, %u: tensor<1xi64>) -> (tensor<3xi64>, tensor<3xi64>) {
      %z = stablehlo.constant dense<0> : tensor<3xi64>
      %r = "stablehlo.scatter"(%z, %i, %u) ({
      ^bb0(%a: tensor<i64>, %b: tensor<i64>):
        stablehlo.return %b : tensor<i64>
      }) {scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0],
            scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}
        : (tensor<3xi64>, tensor<1x1xi64>, tensor<1xi64>) -> tensor<3xi64>
      return %z, %r : tensor<3xi64>, tensor<3xi64>
    }"""
    before, after = get_engine("reference").compile(text)(numpy.array([[1]]), numpy.array([5]))
    numpy.testing.assert_array_equal(before.to_numpy(), [0, 0, 0])
    numpy.testing.assert_array_equal(after.to_numpy(), [0, 5, 0])


@pytest.mark.parametrize("operation", UNSUPPORTED)
def test_unsupported_operation_is_refused_before_it_runs(operation: str) -> None:
    message = f"the reference engine cannot run 1 operation(s) of the program:\n  {operation}: "
    with pytest.raises(EngineError, match=re.escape(message)):
        get_engine("reference").compile(text_of(operation))


@pytest.mark.parametrize("operation", UNSUPPORTED)
def test_unsupported_operation_really_fails(operation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list is true of this jaxlib: each operation fails, and the failure stays in the child process."""
    monkeypatch.setattr(reference, "UNSUPPORTED_OPERATIONS", {})
    program = get_engine("reference").compile(text_of(operation))
    with pytest.raises(EngineError, match=r"the StableHLO interpreter crashed \(SIGABRT\): LLVM ERROR: "):
        program(*arguments_of(program, operation))


def test_every_unsupported_operation_is_listed_at_once() -> None:
    text = """func.func @main(%x: tensor<2x2xf32>) -> tensor<2x2xf32> {
      %0 = stablehlo.cholesky %x : tensor<2x2xf32>
      %1 = stablehlo.dot %0, %x : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
      return %1 : tensor<2x2xf32>
    }"""
    with pytest.raises(EngineError, match=r"(?s)cannot run 2 operation.*stablehlo.cholesky.*stablehlo.dot"):
        get_engine("reference").compile(text)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("dtype", sorted(dtypes.EVERY, key=lambda dtype: dtype.name), ids=str)
@pytest.mark.parametrize("shape", [(2, 3), (), (0, 3)], ids=str)
def test_every_dtype_makes_the_round_trip(dtype: DType, shape: tuple[int, ...]) -> None:
    type_ = f"tensor<{''.join(f'{size}x' for size in shape)}{dtype.mlir}>"
    program = get_engine("reference").compile(
        f"func.func @main(%x: {type_}) -> {type_} {{ return %x : {type_} }}", input_names=["x"]
    )
    values = numpy.arange(1, 7)[: int(numpy.prod(shape))].reshape(shape).astype(dtype.numpy)
    if dtype.is_complex:
        values = numpy.asarray(values * dtype.numpy.type(1 - 2j))
    (result,) = program(values)
    numpy.testing.assert_array_equal(result.to_numpy(), values, strict=True)


def test_half_precision_arithmetic() -> None:
    text = """func.func @main(%x: tensor<3xbf16>) -> tensor<3xbf16> {
      %0 = stablehlo.multiply %x, %x : tensor<3xbf16>
      return %0 : tensor<3xbf16>
    }"""
    x = numpy.array([1.5, 3.140625, -7], ml_dtypes.bfloat16)
    (result,) = get_engine("reference").compile(text)(x)
    numpy.testing.assert_array_equal(result.to_numpy(), x * x, strict=True)


def test_end_of_the_child_is_an_error_and_the_next_call_works() -> None:
    engine = ReferenceEngine()
    program = engine.compile(STALLING)
    assert program(numpy.array(3))[0].to_numpy() == 3
    child = engine._worker._child
    assert child is not None
    os.kill(child.process.pid, signal.SIGKILL)
    child.process.wait()
    with pytest.raises(EngineError, match="the reference engine's process ended\n  next: call again"):
        program(numpy.array(3))
    assert program(numpy.array(4))[0].to_numpy() == 4


def test_timeout_ends_the_child() -> None:
    engine = ReferenceEngine()
    program = engine.compile(STALLING)
    program(numpy.array(1))
    first = engine._worker._child
    assert first is not None
    with (
        override(worker_timeout_s=0.2),
        pytest.raises(EngineError, match=r"took longer than 0\.2 s\n  next: set "),
    ):
        program(numpy.array(2**62))
    assert first.process.poll() is not None
    assert program(numpy.array(5))[0].to_numpy() == 5


def test_the_child_goes_with_its_engine() -> None:
    engine = ReferenceEngine()
    engine.compile(STALLING)(numpy.array(1))
    child = engine._worker._child
    assert child is not None
    process = child.process
    del engine, child
    deadline = time.monotonic() + 30
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert process.poll() is not None
