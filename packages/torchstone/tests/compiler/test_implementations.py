"""Custom operators and primitives in exports: traced through, kept whole, or refused by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import torchstone
from torchstone.compiler.rules import RULES
from torchstone.config import override
from torchstone.errors import CaptureError, UnsupportedOperators
from torchstone.lowering import load

prims = torch.ops.prims


@torch.library.custom_op("tests_implementations::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(x) * 2


@twice.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("tests_implementations::add_sine", mutates_args=("x",))
def add_sine(x: torch.Tensor, y: torch.Tensor) -> None:
    x.add_(y.sin())


@torch.library.custom_op("tests_implementations::through_numpy", mutates_args=())
def through_numpy(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(x.numpy() * 2)


@through_numpy.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("tests_implementations::rows_before", mutates_args=())
def rows_before(x: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    made = torch.zeros_like(x)
    for end in ends.tolist():
        if end > 0:
            made[:end] += x[:end]
    return made


@rows_before.register_fake
def _(x: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@pytest.fixture(scope="module")
def library() -> Iterator[Any]:
    made = torch.library.Library("tests_implementations_lib", "DEF")
    made.define("thrice(Tensor x) -> Tensor")
    made.impl("thrice", lambda x: x.cos() * 3, "CompositeExplicitAutograd")
    made.define("shapeless(Tensor x) -> Tensor")
    made.impl("shapeless", lambda x: torch.from_numpy(x.numpy() + 1), "CPU")
    yield torch.ops.tests_implementations_lib
    made._destroy()


def check(function: Callable[..., Any], *args: torch.Tensor) -> torchstone.Program:
    program = torchstone.export(function, args)
    torch.testing.assert_close(program(*args), function(*args))
    return program


def test_a_custom_operator_is_traced_through() -> None:
    program = check(lambda x: twice(x) + 1, torch.randn(3))
    assert "stablehlo.sine" in program.mlir_text()


def test_a_custom_operator_in_a_captured_program_is_traced_through() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return twice(x) + 1

    x = torch.randn(3)
    captured = torch.export.export(Model(), (x,))
    torch.testing.assert_close(torchstone.export(captured)(x), Model()(x))


def test_an_operator_of_a_library_is_traced_through(library: Any) -> None:
    check(lambda x: library.thrice(x) + 1, torch.randn(3))
    check(lambda x: library.thrice.default(x) + 1, torch.randn(3))


def test_an_operator_that_writes_is_traced_through() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        changed = x.clone()
        add_sine(changed[1:], y)
        return changed * 2

    check(function, torch.randn(4), torch.randn(3))


def test_an_implementation_that_looks_at_values_is_named() -> None:
    message = r"through_numpy.default[^|]*\n *why: .*its Python code is not traced"
    with pytest.raises(UnsupportedOperators, match=message):
        torchstone.export(lambda x: through_numpy(x) + 1, (torch.randn(3),))


def test_an_implementation_that_makes_sizes_of_values_is_named() -> None:
    message = r"rows_before.default[^|]*\n *why: .*its Python code is not traced"
    with pytest.raises(UnsupportedOperators, match=message):
        torchstone.export(lambda x, ends: rows_before(x, ends) + 1, (torch.randn(3), torch.tensor([1, 3])))


def test_an_operator_whose_shapes_pytorch_does_not_know_is_named(library: Any) -> None:
    message = rf"shape and dtype \S+\.shapeless\.default returns at {re.escape(__file__)}:\d+"
    with pytest.raises(CaptureError, match=message) as caught:
        torchstone.export(lambda x: library.shapeless(x) * 2, (torch.ones(3),))
    assert 'torch.library.register_fake("tests_implementations_lib::shapeless")' in str(caught.value)


def test_the_setting_keeps_operators_whole() -> None:
    with override(trace_implementations=False), pytest.raises(UnsupportedOperators, match="twice") as caught:
        torchstone.export(lambda x: twice(x), (torch.randn(3),))
    assert "Python code" not in str(caught.value)


def test_a_rule_keeps_one_operator_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    operator = torch.ops.tests_implementations.twice.default
    monkeypatch.setattr(RULES, "calls", dict(RULES.calls))
    torchstone.capture_rule(operator)(lambda x: NotImplemented)
    try:
        with pytest.raises(UnsupportedOperators, match="twice"):
            torchstone.export(lambda x: twice(x), (torch.randn(3),))
    finally:
        load().record(operator).rules.clear()


PRIMITIVES: dict[str, Callable[[torch.Tensor], Any]] = {
    "add": lambda x: prims.add(x, x),
    "amax": lambda x: prims.amax(x, [1]),
    "bessel_j0": prims.bessel_j0,
    "broadcast_in_dim": lambda x: prims.broadcast_in_dim(x, [2, 3, 4], [1, 2]),
    "cat": lambda x: prims.cat([x, x], 0),
    "collapse": lambda x: prims.collapse(x, 0, 1),
    "convert_element_type": lambda x: prims.convert_element_type(x, torch.float64),
    "frexp": prims.frexp,
    "fill": lambda x: prims.fill(x, 2.0),
    "rev": lambda x: prims.rev(x, [0]),
    "rsqrt": lambda x: prims.rsqrt(x.abs()),
    "split_dim": lambda x: prims.split_dim(x, 1, 2),
    "squeeze": lambda x: prims.squeeze(x[None], [0]),
    "sum": lambda x: prims.sum(x, [0]),
    "transpose": lambda x: prims.transpose(x, [1, 0]),
    "var": lambda x: prims.var(x, [0], 1.0),
    "where": lambda x: prims.where(x > 0, x, -x),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", PRIMITIVES)
def test_calls_of_primitives(name: str) -> None:
    check(PRIMITIVES[name], torch.randn(3, 4))
