"""ReLUs are computed again for the backward pass, where programs are to keep fewer values."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

from cpu_modules import rewritten
from torchstone.config import override
from torchstone.runtime import late_activations
from torchstone.runtime.pjrt import PjrtEngine

ROWS, WIDTH, LAYERS = 4096, 64, 3
X, WEIGHT = f"tensor<{ROWS}x{WIDTH}xf32>", f"tensor<{WIDTH}x{WIDTH}xf32>"
BYTES = ROWS * WIDTH * 4


def layers(operation: str = "maximum", bound: str = "dense<0.0>") -> str:
    """A module of linear layers with ReLUs, and the gradients of its weights."""
    lines, value = [f"%z = stablehlo.constant {bound} : {X}"], "%x"
    for layer in range(LAYERS):
        lines.append(
            f"%p{layer} = stablehlo.dot_general {value}, %w{layer}, contracting_dims = [1] x [0]"
            f" : ({X}, {WEIGHT}) -> {X}"
        )
        lines.append(f"%r{layer} = stablehlo.{operation} %p{layer}, %z : {X}")
        value = f"%r{layer}"
    gradient, made = value, []
    for layer in reversed(range(LAYERS)):
        lines.append(
            f"%m{layer} = stablehlo.compare GT, %r{layer}, %z : ({X}, {X}) -> tensor<{ROWS}x{WIDTH}xi1>"
        )
        lines.append(
            f"%g{layer} = stablehlo.select %m{layer}, {gradient}, %z : tensor<{ROWS}x{WIDTH}xi1>, {X}"
        )
        before = f"%r{layer - 1}" if layer else "%x"
        lines.append(
            f"%d{layer} = stablehlo.dot_general {before}, %g{layer}, contracting_dims = [0] x [0]"
            f" : ({X}, {X}) -> {WEIGHT}"
        )
        lines.append(
            f"%b{layer} = stablehlo.dot_general %g{layer}, %w{layer}, contracting_dims = [1] x [1]"
            f" : ({X}, {WEIGHT}) -> {X}"
        )
        gradient = f"%b{layer}"
        made.append(f"%d{layer}")
    arguments = ", ".join([f"%x: {X}", *(f"%w{layer}: {WEIGHT}" for layer in range(LAYERS))])
    types = ", ".join([WEIGHT] * LAYERS)
    body = "\n".join([*lines, f"return {', '.join(made)} : {types}"])
    return f"func.func @main({arguments}) -> ({types}) {{\n{body}\n}}"


def compiled(text: str) -> Any:
    with override(cache=False, save_memory=True):
        return PjrtEngine().compile(text)


def values(special: float = 0.5) -> list[Any]:
    chance = numpy.random.default_rng(0)
    x = chance.standard_normal((ROWS, WIDTH)).astype(numpy.float32)
    x[0, 0] = special
    weights = chance.standard_normal((LAYERS, WIDTH, WIDTH)) / WIDTH
    return [x, *weights.astype(numpy.float32)]


def test_fewer_values_are_alive_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    late = compiled(layers()).memory["intermediate"]
    monkeypatch.setattr(late_activations, "make_late", lambda module: None)
    early = compiled(layers()).memory["intermediate"]
    assert early - late >= BYTES, "XLA keeps fewer values now: runtime/late_activations.py can go"


@pytest.mark.parametrize("bound", ["dense<0.0>", "dense<-0.25>"])
@pytest.mark.parametrize("special", [0.5, -1.0, numpy.nan, numpy.inf])
def test_the_results_are_the_same(special: float, bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = compiled(layers(bound=bound))(*values(special))
    monkeypatch.setattr(late_activations, "make_late", lambda module: None)
    for one, other in zip(found, compiled(layers(bound=bound))(*values(special)), strict=True):
        numpy.testing.assert_array_equal(one.to_numpy(), other.to_numpy())


def relus(text: str, *, saving: bool) -> int:
    return rewritten(text, saving=saving).count("stablehlo.maximum")


def test_only_large_relus_are_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    assert relus(layers(), saving=False) == LAYERS
    assert (
        relus(layers(), saving=True) == 2 * LAYERS - 1
    )  # no product of the backward pass reads the last one
    assert rewritten(layers("minimum"), saving=True).count("stablehlo.minimum") == LAYERS
    monkeypatch.setattr(late_activations, "SMALLEST", ROWS * WIDTH + 1)
    assert relus(layers(), saving=True) == LAYERS
