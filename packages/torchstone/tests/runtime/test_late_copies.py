"""Kernels for the backward pass are copied when the pass needs them, so fewer copies exist at once."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

from cpu_modules import rewritten
from torchstone.config import override
from torchstone.runtime import in_place, late_copies
from torchstone.runtime.pjrt import PjrtEngine

CHANNELS, LAYERS = 128, 6
SIGNAL = f"tensor<4x8x8x{CHANNELS}xf32>"
KERNEL = f"tensor<3x3x{CHANNELS}x{CHANNELS}xf32>"
KERNEL_BYTES = 3 * 3 * CHANNELS * CHANNELS * 4


def convolution(x: str, kernel: str, features: str = "i, o") -> str:
    return (
        f"stablehlo.convolution({x}, {kernel}) dim_numbers = [b, 0, 1, f]x[0, 1, {features}]->[b, 0, 1, f],"
        " window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}"
        f" : ({SIGNAL}, {KERNEL}) -> {SIGNAL}"
    )


def layers(count: int, *, backward: bool) -> str:
    """A module of convolutions with tanh after each, and the gradient of its input."""
    lines, value = [], "%x"
    for layer in range(count):
        lines.append(f"%c{layer} = {convolution(value, f'%k{layer}')}")
        lines.append(f"%h{layer} = stablehlo.tanh %c{layer} : {SIGNAL}")
        value = f"%h{layer}"
    for layer in reversed(range(count)) if backward else ():
        lines.append(f"%r{layer} = stablehlo.reverse %k{layer}, dims = [0, 1] : {KERNEL}")
        lines.append(f"%s{layer} = stablehlo.multiply {value}, %h{layer} : {SIGNAL}")
        lines.append(f"%g{layer} = {convolution(f'%s{layer}', f'%r{layer}', 'o, i')}")
        value = f"%g{layer}"
    arguments = ", ".join([f"%x: {SIGNAL}", *(f"%k{layer}: {KERNEL}" for layer in range(count))])
    body = "\n".join([*lines, f"return {value} : {SIGNAL}"])
    return f"func.func @main({arguments}) -> {SIGNAL} {{\n{body}\n}}"


def patches(turned: bool) -> str:
    """Return a product with a weight, forward and back; if ``turned``, the weight is assembled from tiles."""
    rows, weight = "tensor<64x256xf32>", "tensor<256x256xf32>"
    tiles, order = "tensor<256x16x16xf32>", "tensor<16x16x256xf32>"
    given = tiles if turned else weight
    if turned:
        again = f"""%a = stablehlo.transpose %w, dims = [2, 1, 0] : ({tiles}) -> {order}
  %t = stablehlo.reshape %a : ({order}) -> {weight}"""
        flat = f"stablehlo.reshape %w : ({tiles}) -> {weight}"
    else:
        again = f"%t = stablehlo.transpose %w, dims = [1, 0] : ({weight}) -> {weight}"
        flat = f"stablehlo.reshape %w : ({weight}) -> {weight}"
    dot = f"contracting_dims = [1] x [0] : ({rows}, {weight}) -> {rows}"
    return f"""func.func @main(%x: {rows}, %w: {given}) -> {rows} {{
  %f = {flat}
  %y = stablehlo.dot_general %x, %f, {dot}
  %h = stablehlo.tanh %y : {rows}
  {again}
  %z = stablehlo.dot_general %h, %t, {dot}
  return %z : {rows}
}}"""


def compiled(text: str) -> Any:
    with override(cache=False):
        return PjrtEngine().compile(text)


def values(special: float = 0.5) -> list[Any]:
    chance = numpy.random.default_rng(0)
    x = chance.standard_normal((4, 8, 8, CHANNELS)).astype(numpy.float32)
    x[0, 0, 0, 0] = special
    kernels = chance.standard_normal((LAYERS, 3, 3, CHANNELS, CHANNELS)) / CHANNELS
    return [x, *kernels.astype(numpy.float32)]


def test_fewer_copies_are_alive_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    text = layers(LAYERS, backward=True)
    late = compiled(text).memory["intermediate"]
    monkeypatch.setattr(late_copies, "make_late", lambda module: None)
    early = compiled(text).memory["intermediate"]
    assert early - late > (LAYERS - 2) * KERNEL_BYTES, "XLA copies late now: runtime/late_copies.py can go"


@pytest.mark.parametrize("special", [0.5, numpy.nan, numpy.inf])
def test_the_kernel_is_always_what_is_copied(special: float, monkeypatch: pytest.MonkeyPatch) -> None:
    text = layers(LAYERS, backward=True)
    (found,) = compiled(text)(*values(special))
    monkeypatch.setattr(late_copies, "make_late", lambda module: None)
    (expected,) = compiled(text)(*values(special))
    numpy.testing.assert_array_equal(found.to_numpy(), expected.to_numpy())


def selects(text: str) -> int:
    return rewritten(text).count("stablehlo.select")


def test_only_large_kernels_that_were_read_before_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    assert selects(layers(LAYERS, backward=True)) == LAYERS
    assert selects(layers(LAYERS, backward=False)) == 0
    monkeypatch.setattr(late_copies, "SMALLEST", in_place.SMALLEST * 100)
    assert selects(layers(LAYERS, backward=True)) == 0


@pytest.mark.parametrize(("turned", "count"), [(True, 1), (False, 0)], ids=["tiles", "matrix"])
def test_of_weights_in_products_those_that_are_rearranged_wait(turned: bool, count: int) -> None:
    assert selects(patches(turned)) == count
