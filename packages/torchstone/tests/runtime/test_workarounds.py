"""Bugs of engines: each one still exists while there is a workaround for it, and the workaround fixes it."""

from __future__ import annotations

import itertools
from importlib.util import find_spec
from pathlib import Path

import numpy
import pytest

from torchstone.errors import EngineError
from torchstone.runtime import get_engine, modules, workarounds
from torchstone.runtime.workarounds import (
    IREE_BOOLEAN_ADD,
    IREE_EMPTY_PRODUCT,
    IREE_SORT_OF_SLICE,
    XLA_CPU_BASE_DILATION,
    Bug,
)

PROGRAMS = Path(__file__).with_name("engine_bugs")


def program(bug: Bug) -> str:
    return (PROGRAMS / f"{bug.name}.mlir").read_text()


def test_every_bug_has_a_program() -> None:
    assert {f"{bug.name}.mlir" for bug in workarounds.BUGS} == {path.name for path in PROGRAMS.iterdir()}


def test_base_dilation() -> None:
    values = numpy.random.default_rng(0).standard_normal((64, 128)).astype(numpy.float32)
    expected = numpy.full((32, 255), -numpy.inf, numpy.float32)
    expected[:, ::2] = values.reshape(32, 2, 128).max(1)
    (found,) = get_engine("pjrt").compile(program(XLA_CPU_BASE_DILATION))(values)
    numpy.testing.assert_array_equal(found.to_numpy(), expected)
    (without,) = get_engine("jax").compile(program(XLA_CPU_BASE_DILATION))(values)
    assert numpy.array_equal(without.to_numpy(), expected) != XLA_CPU_BASE_DILATION.present, (
        f"{XLA_CPU_BASE_DILATION} is wrong about the installed version: "
        "set last to the newest version that has the bug, or take its workaround out"
    )


@pytest.mark.skipif(find_spec("iree") is None, reason="IREE is not installed: make test-iree")
def test_boolean_sums_on_iree(monkeypatch: pytest.MonkeyPatch) -> None:
    values, text = numpy.array([False, True]), program(IREE_BOOLEAN_ADD)
    (found,) = get_engine("iree").compile(text)(values)
    numpy.testing.assert_array_equal(found.to_numpy(), values)
    monkeypatch.setattr(workarounds, "for_iree", lambda module: None)
    (without,) = get_engine("iree").compile(f"{text}// another program for the cache")(values)
    assert numpy.array_equal(without.to_numpy(), values) != IREE_BOOLEAN_ADD.present, (
        f"{IREE_BOOLEAN_ADD} is wrong about the installed version: "
        "set last to the newest version that has the bug, or take its workaround out"
    )


def assert_refused_without_its_workaround(bug: Bug, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workarounds, "for_iree", lambda module: None)
    refused = False
    try:
        get_engine("iree").compile(f"{text}// another program for the cache")
    except EngineError:
        refused = True
    assert refused == bug.present, (
        f"{bug} is wrong about the installed version: "
        "set last to the newest version that has the bug, or take its workaround out"
    )


@pytest.mark.skipif(find_spec("iree") is None, reason="IREE is not installed: make test-iree")
def test_a_sort_of_a_slice_on_iree(monkeypatch: pytest.MonkeyPatch) -> None:
    values, text = numpy.array([[3, 1, 2, 0], [0, 2, 1, 3]]), program(IREE_SORT_OF_SLICE)
    (found,) = get_engine("iree").compile(text)(values)
    assert found.to_numpy().tolist() == [[1, 3], [0, 2]]
    assert_refused_without_its_workaround(IREE_SORT_OF_SLICE, text, monkeypatch)


@pytest.mark.skipif(find_spec("iree") is None, reason="IREE is not installed: make test-iree")
@pytest.mark.parametrize(
    ("element", "dtype"), [("f32", "float32"), ("i64", "int64"), ("complex<f32>", "complex64")]
)
def test_a_product_over_no_elements_on_iree(
    element: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = program(IREE_EMPTY_PRODUCT).replace("f32", element)
    given = numpy.zeros((2, 0), dtype), numpy.zeros((0, 3), dtype)
    (found,) = get_engine("iree").compile(text)(*given)
    numpy.testing.assert_array_equal(found.to_numpy(), numpy.zeros((2, 3), dtype))
    if element == "f32":
        assert_refused_without_its_workaround(IREE_EMPTY_PRODUCT, text, monkeypatch)


def holes(window: tuple[int, int], stride: tuple[int, int], hole: tuple[int, int], pad: int) -> str:
    sizes = [(size - 1) * hole[axis] + 1 + pad - window[axis] for axis, size in enumerate((9, 7))]
    made = "x".join(str(size // stride[axis] + 1) for axis, size in enumerate(sizes))
    results = f"(tensor<{made}xf32>, tensor<{made}xf32>)"
    return f"""func.func @main(%x: tensor<9x7xf32>, %y: tensor<9x7xf32>) -> {results} {{
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %r:2 = "stablehlo.reduce_window"(%x, %y, %zero, %zero) <{{
        window_dimensions = array<i64: {window[0]}, {window[1]}>,
        window_strides = array<i64: {stride[0]}, {stride[1]}>,
        base_dilations = array<i64: {hole[0]}, {hole[1]}>,
        padding = dense<[[0, {pad}], [{pad}, 0]]> : tensor<2x2xi64>
      }}> ({{
      ^bb0(%a: tensor<f32>, %b: tensor<f32>, %c: tensor<f32>, %d: tensor<f32>):
        %s = stablehlo.add %a, %c : tensor<f32>
        %t = stablehlo.add %b, %d : tensor<f32>
        stablehlo.return %s, %t : tensor<f32>, tensor<f32>
      }}) : (tensor<9x7xf32>, tensor<9x7xf32>, tensor<f32>, tensor<f32>) -> {results}
      return %r#0, %r#1 : tensor<{made}xf32>, tensor<{made}xf32>
    }}"""


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("window", "stride", "hole", "pad"),
    list(itertools.product([(1, 1), (1, 2), (2, 1)], [(1, 1), (1, 2)], [(1, 3), (2, 2)], [-1, 0, 2])),
)
def test_windows_with_holes_keep_their_meaning(
    window: tuple[int, int], stride: tuple[int, int], hole: tuple[int, int], pad: int
) -> None:
    """Compare the workaround with the interpreter, for windows on two operands that it changes or not."""
    text = holes(window, stride, hole, pad)
    x, y = (numpy.random.default_rng(seed).standard_normal((9, 7)).astype(numpy.float32) for seed in (0, 1))
    found, expected = (get_engine(name).compile(text)(x, y) for name in ("pjrt", "reference"))
    for one, other in zip(found, expected, strict=True):
        numpy.testing.assert_allclose(one.to_numpy(), other.to_numpy(), rtol=1e-6)


def test_a_mended_version_needs_no_workaround(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workarounds, "version", lambda package: "99.0.0")
    assert not XLA_CPU_BASE_DILATION.present
    program = holes((1, 1), (1, 1), (1, 3), 0)
    assert modules.read(program, rewrite=workarounds.for_xla_cpu) == modules.read(program)
    monkeypatch.setattr(workarounds, "version", lambda package: "0.10.0.dev20260101")
    assert XLA_CPU_BASE_DILATION.present
    assert modules.read(program, rewrite=workarounds.for_xla_cpu) != modules.read(program)
