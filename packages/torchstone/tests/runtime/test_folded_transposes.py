"""Products read a transposed matrix as it lies, and copy nothing."""

from __future__ import annotations

import re
from typing import Any

import numpy
import pytest

from cpu_modules import rewritten
from torchstone.config import override
from torchstone.runtime import folded_transposes
from torchstone.runtime.pjrt import PjrtEngine

WEIGHT = "tensor<48x32xf32>"
TURNED = "tensor<32x48xf32>"
TURN = f"stablehlo.transpose %w, dims = [1, 0] : ({WEIGHT}) -> {TURNED}"
ROW = f"""func.func @main(%x: tensor<1x32xf32>, %w: {WEIGHT}) -> tensor<1x48xf32> {{
  %t = {TURN}
  %y = stablehlo.dot_general %x, %t, contracting_dims = [1] x [0]
      : (tensor<1x32xf32>, {TURNED}) -> tensor<1x48xf32>
  return %y : tensor<1x48xf32>
}}"""
"""A linear layer with one row."""
BATCHED = """func.func @main(%x: tensor<4x7xf32>, %w: tensor<7x4xf32>) -> tensor<4xf32> {
  %t = stablehlo.transpose %w, dims = [1, 0] : (tensor<7x4xf32>) -> tensor<4x7xf32>
  %y = stablehlo.dot_general %x, %t, batching_dims = [0] x [0], contracting_dims = [1] x [1]
      : (tensor<4x7xf32>, tensor<4x7xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}"""


def product(turned: tuple[str, ...], contracted: tuple[int, int]) -> tuple[str, list[Any], Any]:
    """Return a module that multiplies ``x`` and ``y``, some transposed first, its inputs and its result."""
    chance = numpy.random.default_rng(0)
    sizes = {"x": [3, 3], "y": [5, 5]}
    sizes["x"][contracted[0]] = sizes["y"][contracted[1]] = 4
    lines, arguments, inputs = [], [], []
    values = {}
    for name, size in sizes.items():
        given = size[::-1] if name in turned else size
        kind = f"tensor<{given[0]}x{given[1]}xf32>"
        arguments.append(f"%{name}: {kind}")
        array = chance.standard_normal(given).astype(numpy.float32)
        inputs.append(array)
        values[name] = array.T if name in turned else array
        read = f"tensor<{size[0]}x{size[1]}xf32>"
        if name in turned:
            lines.append(f"%{name}t = stablehlo.transpose %{name}, dims = [1, 0] : ({kind}) -> {read}")
    left, right = (f"%{name}t" if name in turned else f"%{name}" for name in sizes)
    kinds = ", ".join(f"tensor<{a}x{b}xf32>" for a, b in sizes.values())
    lines.append(
        f"%r = stablehlo.dot_general {left}, {right}, contracting_dims = [{contracted[0]}] x"
        f" [{contracted[1]}] : ({kinds}) -> tensor<3x5xf32>"
    )
    body = "\n".join([*lines, "return %r : tensor<3x5xf32>"])
    text = f"func.func @main({', '.join(arguments)}) -> tensor<3x5xf32> {{\n{body}\n}}"
    return text, inputs, numpy.tensordot(values["x"], values["y"], ([contracted[0]], [contracted[1]]))


@pytest.mark.parametrize("contracted", [(1, 0), (1, 1), (0, 0), (0, 1)])
@pytest.mark.parametrize(
    "turned", [(), ("x",), ("y",), ("x", "y")], ids=lambda names: "".join(names) or "none"
)
def test_the_product_stays_the_same(turned: tuple[str, ...], contracted: tuple[int, int]) -> None:
    text, inputs, expected = product(turned, contracted)
    assert "stablehlo.transpose" not in rewritten(text)
    (found,) = PjrtEngine().compile(text)(*inputs)
    numpy.testing.assert_allclose(found.to_numpy(), expected, rtol=1e-5, atol=1e-6)


def compiled(text: str) -> str:
    with override(cache=False):
        return str(PjrtEngine().compile(text).compiled.text)


def copies(text: str) -> list[str]:
    return re.findall(r"= f32\[\S+ (?:copy|transpose)\(", text)


def test_a_product_of_one_row_copies_no_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not copies(compiled(ROW))
    monkeypatch.setattr(folded_transposes, "fold", lambda module: None)
    assert copies(compiled(ROW)), "XLA folds the transpose now: runtime/folded_transposes.py can go"


def test_a_transpose_that_others_read_stays() -> None:
    text = ROW.replace("-> tensor<1x48xf32> {", f"-> (tensor<1x48xf32>, {TURNED}) {{").replace(
        "return %y : tensor<1x48xf32>", f"return %y, %t : tensor<1x48xf32>, {TURNED}"
    )
    x, w = numpy.ones((1, 32), numpy.float32), numpy.arange(48 * 32, dtype=numpy.float32).reshape(48, 32)
    y, t = (one.to_numpy() for one in PjrtEngine().compile(text)(x, w))
    numpy.testing.assert_array_equal(t, w.T)
    numpy.testing.assert_allclose(y, x @ w.T, rtol=1e-6)


def test_batched_products_are_left_alone() -> None:
    assert rewritten(BATCHED).count("stablehlo.transpose") == 1
    chance = numpy.random.default_rng(0)
    x, w = (chance.standard_normal(size).astype(numpy.float32) for size in ((4, 7), (7, 4)))
    (found,) = PjrtEngine().compile(BATCHED)(x, w)
    numpy.testing.assert_allclose(found.to_numpy(), (x * w.T).sum(1), rtol=1e-5, atol=1e-6)
