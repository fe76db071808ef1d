"""In-place updates wait for other products that read the memory they overwrite, so nothing is copied."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

from torchstone.config import override
from torchstone.runtime import CompileOptions, in_place
from torchstone.runtime.pjrt import PjrtEngine

SIZE = 256
WEIGHT, ROWS = f"tensor<{SIZE}x{SIZE}xf32>", f"tensor<64x{SIZE}xf32>"


def product(one: str, other: str, contract: str, types: str) -> str:
    return f"stablehlo.dot_general {one}, {other}, contracting_dims = {contract} : {types}"


STEP = f"""func.func @main(%v: {WEIGHT}, %w: {WEIGHT}, %x: {ROWS}) -> ({WEIGHT}, {WEIGHT}, {ROWS}) {{
  %y = {product("%x", "%v", "[1] x [0]", f"({ROWS}, {WEIGHT}) -> {ROWS}")}
  %h = stablehlo.tanh %y : {ROWS}
  %z = {product("%h", "%w", "[1] x [0]", f"({ROWS}, {WEIGHT}) -> {ROWS}")}
  %t = stablehlo.transpose %w, dims = [1, 0] : ({WEIGHT}) -> {WEIGHT}
  %dh = {product("%z", "%t", "[1] x [0]", f"({ROWS}, {WEIGHT}) -> {ROWS}")}
  %dw = {product("%h", "%z", "[0] x [0]", f"({ROWS}, {ROWS}) -> {WEIGHT}")}
  %dv = {product("%x", "%dh", "[0] x [0]", f"({ROWS}, {ROWS}) -> {WEIGHT}")}
  %v1 = stablehlo.subtract %v, %dv : {WEIGHT}
  %w1 = stablehlo.subtract %w, %dw : {WEIGHT}
  return %v1, %w1, %z : {WEIGHT}, {WEIGHT}, {ROWS}
}}"""
"""A training step of two layers. The first one's gradient needs the second weight before its update."""


LOOP = f"""func.func @main(%w: {WEIGHT}, %x: {ROWS}) -> ({WEIGHT}, {ROWS}) {{
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %i, %y = stablehlo.while(%at = %zero, %h = %x) : tensor<i32>, {ROWS}
  cond {{
    %more = stablehlo.compare LT, %at, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  }} do {{
    %t = stablehlo.transpose %w, dims = [1, 0] : ({WEIGHT}) -> {WEIGHT}
    %p = {product("%h", "%t", "[1] x [0]", f"({ROWS}, {WEIGHT}) -> {ROWS}")}
    %next = stablehlo.add %at, %one : tensor<i32>
    stablehlo.return %next, %p : tensor<i32>, {ROWS}
  }}
  %dw = {product("%x", "%x", "[0] x [0]", f"({ROWS}, {ROWS}) -> {WEIGHT}")}
  %w1 = stablehlo.subtract %w, %dw : {WEIGHT}
  return %w1, %y : {WEIGHT}, {ROWS}
}}"""
"""A weight that the body of a loop reads, as in a recurrent layer, and that is updated."""


def compiled(updates: tuple[tuple[int, int], ...] = ((0, 0), (1, 1))) -> Any:
    with override(cache=False):
        return PjrtEngine().compile(STEP, options=CompileOptions(updates=updates))


def copies(program: Any) -> int:
    return str(program.compiled.text).count(f"f32[{SIZE},{SIZE}]{{1,0}} copy(")


def values(special: float = 0.5) -> list[Any]:
    chance = numpy.random.default_rng(0)
    v, w, x = (chance.standard_normal((rows, SIZE)).astype(numpy.float32) for rows in (SIZE, SIZE, 64))
    x[0, 0] = special
    return [v / SIZE, w / SIZE, x]


def test_nothing_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    assert copies(compiled()) == 0
    monkeypatch.setattr(in_place, "order_updates", lambda module: None)
    assert copies(compiled()) == 1, "XLA copies nothing now: runtime/in_place.py can go"


@pytest.mark.parametrize("special", [0.5, numpy.nan, numpy.inf])
def test_the_update_is_always_written(special: float) -> None:
    plain = compiled(())(*values(special))
    updated = compiled()(*values(special))
    for one, other in zip(updated, plain, strict=True):
        numpy.testing.assert_allclose(one.to_numpy(), other.to_numpy(), rtol=1e-6, atol=1e-7)


def test_loops_that_read_a_weight() -> None:
    with override(cache=False):
        program = PjrtEngine().compile(LOOP, options=CompileOptions(updates=((0, 0),)))
    _, w, x = values()
    updated, rows = (one.to_numpy() for one in program(w.copy(), x))
    numpy.testing.assert_allclose(updated, w - x.T @ x, rtol=1e-4, atol=1e-4)
    numpy.testing.assert_allclose(rows, x @ w.T @ w.T @ w.T, rtol=1e-4, atol=1e-4)


MANY = f"tensor<4096x{SIZE}xf32>"
LAYERS = f"""func.func @main(%v: {WEIGHT}, %w: {WEIGHT}, %x: {MANY}) -> {WEIGHT} {{
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %y = {product("%x", "%v", "[1] x [0]", f"({MANY}, {WEIGHT}) -> {MANY}")}
  %i, %h = stablehlo.while(%at = %zero, %last = %x) : tensor<i32>, {MANY}
  cond {{
    %more = stablehlo.compare LT, %at, %one : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  }} do {{
    %t = stablehlo.tanh %y : {MANY}
    %next = stablehlo.add %at, %one : tensor<i32>
    stablehlo.return %next, %t : tensor<i32>, {MANY}
  }}
  %a = {product("%h", "%w", "[1] x [0]", f"({MANY}, {WEIGHT}) -> {MANY}")}
  %b = {product("%a", "%w", "[1] x [0]", f"({MANY}, {WEIGHT}) -> {MANY}")}
  %dv = {product("%x", "%b", "[0] x [0]", f"({MANY}, {MANY}) -> {WEIGHT}")}
  %v1 = stablehlo.subtract %v, %dv : {WEIGHT}
  return %v1 : {WEIGHT}
}}"""
"""An update whose gradient depends on the weight's product only through a loop."""


def test_products_are_not_kept_for_the_update(monkeypatch: pytest.MonkeyPatch) -> None:
    """The update waits for one element of the product. The product itself can go when it has been read."""

    def values() -> int:
        with override(cache=False):
            program = PjrtEngine().compile(LAYERS, options=CompileOptions(updates=((0, 0),)))
        return int(program.memory["intermediate"])

    found = values()
    monkeypatch.setattr(in_place.stablehlo, "rsqrt", lambda x: x)  # XLA then computes it with the update
    assert values() - found > 3 * 2**20, "XLA keeps no product now: in_place.always needs no square root"


def test_small_arguments_and_plain_programs_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_place, "SMALLEST", SIZE * SIZE + 1)
    assert copies(compiled()) == 1
    monkeypatch.setattr(in_place, "always", lambda value: pytest.fail("a program that updates nothing"))
    compiled(())
