"""Higher-order operators through ``torch.export``: conditionals, loops, scans and maps on values."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.map import map as map_over
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.export import Dim

import torchstone
from torchstone.errors import UnsupportedOperators


def check(function: Callable[..., Any], *args: torch.Tensor, **options: Any) -> torchstone.Program:
    """The exported function gives what eager gives, on the same arguments."""
    program = torchstone.export(function, args, **options)
    torch.testing.assert_close(program(*args), function(*args))
    return program


def branches(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.cond(x.sum() > 0, lambda x: (x + 1, x.sum()), lambda x: (torch.sin(x) * 2, x.amax()), (x,))


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_cond_takes_the_branch_of_its_condition(sign: float) -> None:
    program = torchstone.export(branches, (torch.ones(3),))
    x = torch.tensor([0.5, 1.0, 2.0]) * sign
    torch.testing.assert_close(program(x), branches(x))
    assert "stablehlo.if" in program.mlir_text()


CONDITIONS: dict[str, Callable[[int, int], Any]] = {
    "greater": lambda n, m: n > 2,
    "at most": lambda n, m: n * 2 <= m + 1,
    "equal": lambda n, m: n == m,
    "both": lambda n, m: (n > 1) & (m < 5),
    "either": lambda n, m: (n > 4) | (m != 5),
    "neither": lambda n, m: torch.sym_not((n > 4) | (m >= 5)),
}


@pytest.mark.kept("greater", "both")
@pytest.mark.parametrize("name", CONDITIONS)
def test_cond_on_sizes_that_each_call_may_change(name: str) -> None:
    class Chosen(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            condition = CONDITIONS[name](x.shape[0], y.shape[0])
            return torch.cond(condition, torch.sin, torch.cos, (x,))

    sizes = {"x": {0: Dim.AUTO}, "y": {0: Dim.AUTO}}
    program = torchstone.export(Chosen(), (torch.randn(4, 3), torch.randn(6)), dynamic_shapes=sizes)
    taken = set()
    for n, m in itertools.product((2, 3, 5), (2, 5, 6)):
        x, chosen = torch.randn(n, 3), bool(CONDITIONS[name](n, m))
        torch.testing.assert_close(program(x, torch.randn(m)), x.sin() if chosen else x.cos())
        taken.add(chosen)
    assert taken == {True, False}


def test_cond_nests_and_sees_outer_values() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        def outer(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return torch.cond(x.sum() > 2, lambda x, y: x * y, lambda x, y: x - y, (x, y))

        return torch.cond(y.sum() > 0, outer, lambda x, y: x + y, (x, y))

    program = torchstone.export(function, (torch.ones(3), torch.ones(3)))
    for x, y in [
        (torch.ones(3), torch.ones(3)),
        (torch.zeros(3), torch.ones(3)),
        (torch.ones(3), -torch.ones(3)),
    ]:
        torch.testing.assert_close(program(x, y), function(x, y))


def grow(i: torch.Tensor, x: torch.Tensor) -> Any:
    return while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x * 1.1 + i), (i, x))


def test_while_loop_runs_until_its_condition_fails() -> None:
    program = torchstone.export(grow, (torch.tensor(0), torch.ones(3)))
    for start in (0, 3, 9):
        args = (torch.tensor(start), torch.arange(3.0))
        torch.testing.assert_close(program(*args), grow(*args))


class Recurrent(torch.nn.Module):
    """A scan whose step uses parameters and returns its carry and an output."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)

    def forward(self, h: torch.Tensor, xs: torch.Tensor) -> Any:
        def step(h: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return torch.tanh(self.linear(h) + x), h * 2

        return scan(step, h, xs, dim=0)


@pytest.mark.parametrize("length", [1, 6])
def test_scan(length: int) -> None:
    torch.manual_seed(0)
    program = check(Recurrent().requires_grad_(False), torch.randn(2, 3), torch.randn(length, 2, 3))
    assert "stablehlo.while" in program.mlir_text()


def test_scan_over_another_axis_backwards_and_with_several_carries() -> None:
    def step(carry: Any, x: Any) -> Any:
        total, largest = carry
        return (total + x["a"], torch.maximum(largest, x["b"])), (total * x["a"], largest.clone())

    def function(a: torch.Tensor, b: torch.Tensor) -> Any:
        init = (torch.zeros(4), torch.full((4,), -9.0))
        return scan(step, init, {"a": a, "b": b}, dim=1, reverse=True)

    torch.manual_seed(0)
    check(function, torch.randn(4, 5), torch.randn(4, 5))


def test_scan_of_symbolic_length() -> None:
    torch.manual_seed(0)
    model = Recurrent().requires_grad_(False)
    time = torch.export.Dim("time", min=2, max=16)
    program = torchstone.export(
        model, (torch.randn(2, 3), torch.randn(6, 2, 3)), dynamic_shapes=({}, {0: time})
    )
    for length in (3, 6):
        args = (torch.randn(2, 3), torch.randn(length, 2, 3))
        torch.testing.assert_close(program(*args), model(*args))


def test_gradient_of_a_scan() -> None:
    torch.manual_seed(0)
    model = Recurrent()
    h, xs = torch.randn(2, 3), torch.randn(4, 2, 3)

    def loss(module: Callable[..., Any]) -> torch.Tensor:
        last, outputs = module(h, xs)
        return last.sum() + (outputs * outputs).sum()

    expected = torch.autograd.grad(loss(model), list(model.parameters()))
    compiled = torch.compile(model, backend="torchstone", options={"fallback": False})
    found = torch.autograd.grad(loss(compiled), list(model.parameters()))
    torch.testing.assert_close(found, expected)


def test_associative_scan() -> None:
    def combine(x: Any, y: Any) -> Any:
        return x[0] * y[0], x[1] * y[0] + y[1]

    def function(a: torch.Tensor, b: torch.Tensor) -> Any:
        return associative_scan(combine, (a, b), 0, combine_mode="generic")

    torch.manual_seed(0)
    check(function, torch.rand(7, 3), torch.randn(7, 3))


def test_random_numbers_inside_a_loop_are_refused() -> None:
    def step(carry: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        noisy = carry + torch.rand_like(x)
        return noisy, noisy.clone()

    with pytest.raises(UnsupportedOperators, match="would be the same in every round") as caught:
        torchstone.export(lambda xs: scan(step, xs[0], xs), (torch.ones(4, 3),))
    assert "draw them before the loop" in str(caught.value)


def scaled_rows(rows: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    return map_over(lambda row, factor: (row * factor).sin() + 1, rows, factor)


def test_map() -> None:
    check(scaled_rows, torch.randn(3, 4), torch.randn(4))


def test_map_of_symbolic_length() -> None:
    rows, factor = torch.randn(3, 4), torch.randn(4)
    program = torchstone.export(
        scaled_rows, (rows, factor), dynamic_shapes=({0: torch.export.Dim("rows")}, None)
    )
    for length in (1, 2, 7):
        rows = torch.randn(length, 4)
        torch.testing.assert_close(program(rows, factor), scaled_rows(rows, factor))


def test_map_of_nested_values_with_parameters_and_a_map_inside() -> None:
    linear = torch.nn.Linear(4, 3)

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = linear

        def forward(self, rows: dict[str, torch.Tensor]) -> Any:
            def step(row: dict[str, torch.Tensor]) -> Any:
                doubled = map_over(lambda one: one * 2, row["v"])
                return {"a": self.linear(row["u"]), "b": (doubled,)}

            return map_over(step, rows)

    model = Model().eval()
    rows = {"u": torch.randn(3, 2, 4), "v": torch.randn(3, 5)}
    with torch.no_grad():
        torch.testing.assert_close(torchstone.export(model, (rows,))(rows), model(rows))
