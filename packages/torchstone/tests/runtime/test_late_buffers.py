"""Buffers that loops fill are made when the loops begin, so fewer of them exist at once."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

from cpu_modules import rewritten
from torchstone.config import override
from torchstone.runtime import late_buffers
from torchstone.runtime.pjrt import PjrtEngine

STEPS, WIDTH, LOOPS = 64, 4096, 4
BUFFER, ROW = f"tensor<{STEPS}x{WIDTH}xf32>", f"tensor<{WIDTH}xf32>"
BUFFER_BYTES = STEPS * WIDTH * 4


def loops(count: int, *, start: str = "dense<0.0>", buffer: str = BUFFER, row: str = "%x") -> str:
    """A module of loops that each write a row per step, add the rows up, and pass the sum to the next one."""
    lines, value = [], row
    for loop in range(count):
        lines.append(f"""%b{loop} = stablehlo.constant {start} : {buffer}
  %i{loop}, %f{loop}, %l{loop} = stablehlo.while(%at = %zero, %rows = %b{loop}, %last = {value})
      : tensor<i32>, {buffer}, {ROW}
  cond {{
    %more = stablehlo.compare LT, %at, %steps : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  }} do {{
    %new = stablehlo.tanh %last : {ROW}
    %one_row = stablehlo.reshape %new : ({ROW}) -> tensor<1x{WIDTH}xf32>
    %put = stablehlo.dynamic_update_slice %rows, %one_row, %at, %zero
      : ({buffer}, tensor<1x{WIDTH}xf32>, tensor<i32>, tensor<i32>) -> {buffer}
    %next = stablehlo.add %at, %one : tensor<i32>
    stablehlo.return %next, %put, %new : tensor<i32>, {buffer}, {ROW}
  }}
  %s{loop} = stablehlo.reduce(%f{loop} init: %nothing) applies stablehlo.add across dimensions = [0]
      : ({buffer}, tensor<f32>) -> {ROW}""")
        value = f"%s{loop}"
    body = "\n  ".join(lines)
    return f"""func.func @main(%x: {ROW}) -> {ROW} {{
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %steps = stablehlo.constant dense<{STEPS - 1}> : tensor<i32>
  %nothing = stablehlo.constant dense<0.0> : tensor<f32>
  %fixed = stablehlo.constant dense<0.5> : {ROW}
  {body}
  return {value} : {ROW}
}}"""


def compiled(text: str) -> Any:
    with override(cache=False):
        return PjrtEngine().compile(text)


def test_fewer_buffers_are_alive_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    text = loops(LOOPS)
    late = compiled(text).memory["intermediate"]
    monkeypatch.setattr(late_buffers, "make_late", lambda module: None)
    early = compiled(text).memory["intermediate"]
    assert early - late > (LOOPS - 3) * BUFFER_BYTES, "XLA fills late now: runtime/late_buffers.py can go"


@pytest.mark.parametrize("start", ["dense<0.0>", "dense<-2.5>", "dense<3.0e38>"])
@pytest.mark.parametrize("special", [0.5, -1.0, numpy.nan, numpy.inf])
def test_rows_that_no_step_writes_keep_their_number(
    special: float, start: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = loops(2, start=start)
    x = numpy.linspace(-1, 1, WIDTH, dtype=numpy.float32)
    x[0] = special
    (found,) = compiled(text)(x)
    monkeypatch.setattr(late_buffers, "make_late", lambda module: None)
    (expected,) = compiled(text)(x)
    numpy.testing.assert_array_equal(found.to_numpy(), expected.to_numpy())


def selects(text: str) -> int:
    return rewritten(text).count("stablehlo.select")


def test_only_large_buffers_of_one_number_wait_for_what_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert selects(loops(LOOPS)) == LOOPS
    assert selects(loops(1, row="%fixed")) == 0, "a loop that reads only constants can run at any time"
    assert selects(loops(1, start="dense<0x7FC00000>")) == 0, "NaN and another number cannot be told apart"
    monkeypatch.setattr(late_buffers, "SMALLEST", STEPS * WIDTH + 1)
    assert selects(loops(LOOPS)) == 0


def test_loops_over_complex_numbers_are_left_alone() -> None:
    text = loops(1).replace(BUFFER, BUFFER.replace("f32", "complex<f32>"))
    body = text[: text.index("%put")] + text[text.index("%next") :]
    body = body.replace("dense<0.0> : tensor<64x", "dense<(0.0, 0.0)> : tensor<64x").replace(
        "%put, ", "%rows, "
    )
    body = body[: body.index("%s0")] + f"return %l0 : {ROW}\n}}"
    assert selects(body) == 0
