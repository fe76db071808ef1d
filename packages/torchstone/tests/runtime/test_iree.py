"""The iree engine: its values against XLA's, what it lacks, and how it is chosen.

Where IREE is not installed, only what happens without it is tested: `make test-iree` installs it.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import numpy
import pytest

from interpreter_samples import SAMPLES
from torchstone import dtypes
from torchstone.config import override
from torchstone.dtypes import DType
from torchstone.errors import EngineError, InputMismatch, MissingExtra, UnsupportedDtype
from torchstone.runtime import _iree_programs, engines, get_engine, reset_stats, stats

INSTALLED = find_spec("iree") is not None
needs_iree = pytest.mark.skipif(not INSTALLED, reason="IREE is not installed: make test-iree")

NO_MEANING_ELSEWHERE = {
    "stablehlo.dynamic_conv": "XLA translates no dynamic convolution",
    "stablehlo.set_dimension_size": "IREE has no bounded dimensions",
    "stablehlo.rng": "its numbers are the engine's own",
    "stablehlo.tuple": "IREE has no tuples",
    "stablehlo.unary_einsum": "neither engine has it",
    "stablehlo.replica_id": "IREE asks for a number of replicas",
    "stablehlo.partition_id": "IREE asks for a number of partitions",
}
"""Operations whose results cannot be compared."""

REFUSED = ("stablehlo.batch_norm_grad", "stablehlo.custom_call")
"""Operations that IREE has no code for; Torchstone lowers nothing to them."""

SYMMETRIC = {"stablehlo.cholesky"}


def program_text(operation: str) -> str:
    arguments, result, body = SAMPLES[operation]
    parameters = ", ".join(f"%arg{position}: {type_}" for position, type_ in enumerate(arguments))
    return f"func.func @main({parameters}) -> {result} {{\n{body}\nreturn %r : {result}\n}}"


def arguments_of(inputs: Any, operation: str) -> list[numpy.ndarray[Any, Any]]:
    """Numbers from 0.1 to 0.9, whole numbers for integers, positive definite matrices for Cholesky."""
    found = []
    for spec in inputs:
        values = numpy.linspace(0.1, 0.9, int(numpy.prod(spec.shape))).reshape(spec.shape)
        if operation in SYMMETRIC:
            values = values @ values.T + numpy.eye(spec.shape[-1])
        if operation == "chlo.polygamma":
            values = numpy.arange(1, values.size + 1).reshape(spec.shape)
        if spec.dtype.is_integer:
            values = numpy.arange(values.size).reshape(spec.shape)
        found.append(values.astype(spec.dtype.numpy))
    return found


@needs_iree
@pytest.mark.parametrize("operation", sorted(SAMPLES.keys() - NO_MEANING_ELSEWHERE.keys() - set(REFUSED)))
def test_agrees_with_xla(operation: str) -> None:
    program, other = (get_engine(name).compile(program_text(operation)) for name in ("iree", "pjrt"))
    arguments = arguments_of(program.inputs, operation)
    (found,), (expected,) = program(*arguments), other(*arguments)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    numpy.testing.assert_allclose(found.to_numpy(), expected.to_numpy(), rtol=1e-5, atol=1e-5)


ADDITION = "func.func @main(%x: T) -> T {\n%r = stablehlo.add %x, %x : T\nreturn %r : T\n}"


@needs_iree
@pytest.mark.parametrize("dtype", sorted(dtypes.EVERY, key=str), ids=str)
def test_each_dtype_is_right_or_refused(dtype: DType) -> None:
    text = ADDITION.replace("T", f"tensor<2x3x{dtype.mlir}>")
    if dtype in _iree_programs.UNSUPPORTED_DTYPES:
        with pytest.raises(UnsupportedDtype, match=f"the iree engine has no {dtype}\n  next: use the pjrt"):
            get_engine("iree").compile(text)
        return
    values = numpy.arange(6).reshape(2, 3).astype(dtype.numpy)
    (found,) = get_engine("iree").compile(text)(values)
    assert found.dtype is dtype
    numpy.testing.assert_array_equal(found.to_numpy(), values + values)


@needs_iree
def test_float64_is_not_computed_in_float32() -> None:
    text = ADDITION.replace("T", "tensor<1xf64>")
    value = numpy.array([1 + 2.0**-50])
    (found,) = get_engine("iree").compile(text)(value)
    assert found.to_numpy() == 2 * value


@needs_iree
@pytest.mark.parametrize("operation", ["stablehlo.cosine", "stablehlo.log_plus_one", "stablehlo.tanh"])
def test_functions_of_float64(operation: str) -> None:
    """IREE's own library has some of them in float32 only."""
    text = ADDITION.replace("T", "tensor<5xf64>").replace("stablehlo.add %x, %x", f"{operation} %x")
    values = numpy.linspace(0.1, 0.9, 5)
    found, expected = (get_engine(name).compile(text)(values)[0].to_numpy() for name in ("iree", "pjrt"))
    numpy.testing.assert_allclose(found, expected, rtol=1e-14)


@needs_iree
@pytest.mark.parametrize("element", ["f32", "f64"])
@pytest.mark.parametrize(
    ("kind", "lengths"),
    [("FFT", (6,)), ("IFFT", (2, 3)), ("RFFT", (8,)), ("RFFT", (4, 7)), ("IRFFT", (6,)), ("IRFFT", (4, 5))],
)
def test_fourier_transforms(kind: str, lengths: tuple[int, ...], element: str) -> None:
    half = (*lengths[:-1], lengths[-1] // 2 + 1)
    whole_type, half_type = (f"tensor<2x{'x'.join(map(str, sizes))}x" + "{}>" for sizes in (lengths, half))
    number = f"complex<{element}>"
    given, made = {
        "RFFT": (whole_type.format(element), half_type.format(number)),
        "IRFFT": (half_type.format(number), whole_type.format(element)),
    }.get(kind, (whole_type.format(number),) * 2)
    text = (
        f"func.func @main(%x: {given}) -> {made} {{\n"
        f"%r = stablehlo.fft %x, type = {kind}, length = {list(lengths)} : ({given}) -> {made}\n"
        f"return %r : {made}\n}}"
    )
    program, other = (get_engine(name).compile(text) for name in ("iree", "pjrt"))
    spec, generator = program.inputs[0], numpy.random.default_rng(0)
    values = (generator.standard_normal(spec.shape) + 1j * generator.standard_normal(spec.shape)).astype(
        spec.dtype.numpy if spec.dtype.is_complex else numpy.complex128
    )
    given_values = values if spec.dtype.is_complex else values.real.astype(spec.dtype.numpy)
    (found,), (expected,) = program(given_values), other(given_values)
    bound = 1e-5 if element == "f32" else 1e-13
    numpy.testing.assert_allclose(found.to_numpy(), expected.to_numpy(), rtol=bound, atol=bound)


@needs_iree
@pytest.mark.parametrize("element", ["f32", "f64", "complex<f32>"])
@pytest.mark.parametrize("transposed", ["NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"])
@pytest.mark.parametrize("left", ["true", "false"])
@pytest.mark.parametrize(("lower", "unit"), [("true", "false"), ("false", "true")])
def test_triangular_solves(element: str, transposed: str, left: str, lower: str, unit: str) -> None:
    a, b = f"tensor<2x3x3x{element}>", f"tensor<2x{'3x4' if left == 'true' else '4x3'}x{element}>"
    text = f"""func.func @main(%a: {a}, %b: {b}) -> {b} {{
      %r = "stablehlo.triangular_solve"(%a, %b) {{left_side = {left}, lower = {lower},
        unit_diagonal = {unit}, transpose_a = #stablehlo<transpose {transposed}>}} : ({a}, {b}) -> {b}
      return %r : {b}
    }}"""
    program, other = (get_engine(name).compile(text) for name in ("iree", "pjrt"))
    generator = numpy.random.default_rng(0)
    arguments = [
        (generator.uniform(1, 2, spec.shape) + 1j * generator.uniform(1, 2, spec.shape)).astype(
            spec.dtype.numpy
        )
        if spec.dtype.is_complex
        else generator.uniform(1, 2, spec.shape).astype(spec.dtype.numpy)
        for spec in program.inputs
    ]
    (found,), (expected,) = program(*arguments), other(*arguments)
    numpy.testing.assert_allclose(found.to_numpy(), expected.to_numpy(), rtol=1e-4, atol=1e-5)


@needs_iree
@pytest.mark.parametrize("element", ["f64", "complex<f32>"])
@pytest.mark.parametrize("lower", ["true", "false"])
def test_cholesky_factors(element: str, lower: str) -> None:
    type_ = f"tensor<2x4x4x{element}>"
    text = f"""func.func @main(%a: {type_}) -> {type_} {{
      %r = stablehlo.cholesky %a, lower = {lower} : {type_}
      return %r : {type_}
    }}"""
    program = get_engine("iree").compile(text)
    generator = numpy.random.default_rng(0)
    values = generator.standard_normal((2, 4, 4)) + 1j * generator.standard_normal((2, 4, 4))
    values = values if program.inputs[0].dtype.is_complex else values.real
    matrix = values @ values.conj().swapaxes(-1, -2) + numpy.eye(4)
    (found,) = program(matrix.astype(program.inputs[0].dtype.numpy))
    factor = numpy.linalg.cholesky(matrix)
    expected = factor if lower == "true" else factor.conj().swapaxes(-1, -2)
    bound = 1e-5 if element == "complex<f32>" else 1e-13
    numpy.testing.assert_allclose(found.to_numpy(), expected, rtol=bound, atol=bound)


@needs_iree
@pytest.mark.parametrize("operation", REFUSED)
def test_what_iree_refuses_is_one_error_with_its_words(operation: str) -> None:
    message = rf"IREE cannot compile the program: .*{operation}.*\n  next: use the pjrt engine"
    with pytest.raises(EngineError, match=message):
        get_engine("iree").compile(program_text(operation))


@needs_iree
def test_a_compilation_that_takes_too_long_is_ended() -> None:
    text = ADDITION.replace("T", "tensor<7x11xf32>")
    message = (
        r"IREE took longer than 0\.001 s to compile the program\n  next: set TORCHSTONE_WORKER_TIMEOUT_S"
    )
    with override(worker_timeout_s=0.001), pytest.raises(EngineError, match=message):
        get_engine("iree").compile(text)


@needs_iree
def test_arguments_are_checked_copied_and_counted() -> None:
    program = get_engine("iree").compile(ADDITION.replace("T", "tensor<4xf32>"))
    with pytest.raises(InputMismatch, match=r"argument 0 must be float32\[4\], found float32\[5\]"):
        program(numpy.ones(5, numpy.float32))
    reset_stats()
    values = numpy.ones(4, numpy.float32)
    (found,) = program(values)
    values[:] = 5
    assert found.to_numpy().tolist() == [2, 2, 2, 2]
    assert stats().copies_in["to IREE"].bytes == stats().copies_out["from IREE"].bytes == 16


@needs_iree
def test_results_without_elements_and_programs_without_arguments() -> None:
    text = """func.func @main() -> (tensor<0x3xf32>, tensor<i32>) {
      %a = stablehlo.constant dense<> : tensor<0x3xf32>
      %b = stablehlo.constant dense<7> : tensor<i32>
      return %a, %b : tensor<0x3xf32>, tensor<i32>
    }"""
    empty, number = get_engine("iree").compile(text)()
    assert empty.shape == (0, 3)
    assert number.to_numpy() == 7


@needs_iree
def test_a_program_is_compiled_once() -> None:
    text = ADDITION.replace("T", "tensor<3x5xf32>")
    get_engine("iree").compile(text)
    reset_stats()
    get_engine("iree").compile(text)
    assert (stats().compiles, stats().memory_hits) == (0, 1)


def test_without_the_packages_the_error_has_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "_engines", {})
    for name in ("iree", "iree.runtime"):
        monkeypatch.setitem(sys.modules, name, None)  # type: ignore[arg-type]
    with pytest.raises(
        MissingExtra, match=r"needs IREE's packages.*\n  next: pip install 'torchstone\[iree\]'"
    ):
        get_engine("iree")


def test_nothing_else_imports_iree() -> None:
    code = (
        "import sys, torchstone\nfrom torchstone.runtime import get_engine\n"
        "get_engine('pjrt'); get_engine('reference'); get_engine('jax')\n"
        "assert not [name for name in sys.modules if name.partition('.')[0] == 'iree']"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
