"""XLA's CPU compiler computes floating-point arithmetic in the order in which a program has it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import torchstone  # noqa: F401  registers the backend
from cpu_modules import rewritten

FAR = [1e30, -1e30, 1e-30, 3e38, -2e38, -2.0, 8.0, 147.0, 1e-9]
NEAR = [1e30, 1e30, 1e30, 3e38, 2e38, -2.0, 8.0, 49.0, 1e-9]

PAIRS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "quotients by one number": lambda x, _: x / (1e38 if x.dtype is torch.float32 else 1.5e308),
    "inexact reciprocal": lambda x, _: torch.floor(x / 49.0),
    "quotients by one element": lambda x, y: x / y[3],
    "quotients by an element of each row": lambda x, y: x.reshape(3, 3) / y.reshape(3, 3)[:, :1],
    "quotients in a row": lambda x, _: x / 1e30 / 1e30,
    "quotients by tensors in a row": lambda x, y: x / y / y,
    "quotient by a quotient": lambda x, y: x / (y / y),
    "quotient of quotients": lambda x, y: (x / y) / (y / x.abs()),
    "quotient by a power": lambda x, y: x / (y.abs() + 1) ** 5,
    "products in a row": lambda x, _: x * 1e100 * 1e-100 if x.dtype is torch.float64 else x * 1e30 * 1e-30,
    "product with an element": lambda x, y: x * 1e30 * (1 / y[0]),
    "product and exact quotient": lambda x, _: x / 0.25 * 0.25,
    "products through a layout": lambda x, _: (x.reshape(3, 3) * 1e30).T.reshape(9) * 1e-30,
    "sums in a row": lambda x, _: x + 1e8 - 1e8,
    "sum and difference": lambda x, _: 1e8 - x - 1e8,
    "multiples of a power of two": lambda x, y: x * 0.5 + y * 0.5,
    "logarithm of a power": lambda x, _: torch.log((x.clamp(-1e3, 1e3) + 0.5) ** 5),
    "logarithm of an inverse root": lambda x, _: torch.log(torch.rsqrt(torch.copysign(x * 0, x))),
    "root of a square": lambda x, _: torch.sqrt(x * x),
    "root of a power": lambda x, _: torch.sqrt(x**2),
}


IN_DOUBLE = ("quotients by one number", "quotients by one element", "products in a row")


@pytest.mark.parametrize(
    ("name", "dtype"),
    [*((name, torch.float32) for name in PAIRS), *((name, torch.float64) for name in IN_DOUBLE)],
)
def test_arithmetic_overflows_and_rounds_as_in_eager(name: str, dtype: torch.dtype) -> None:
    x, y = (torch.tensor(numbers, dtype=torch.float64) for numbers in (FAR, NEAR))
    if dtype is torch.float64:
        x, y = x.sign() * x.abs() ** 8, y.sign() * y.abs() ** 8
    x, y = x.to(dtype), y.to(dtype)
    expected = PAIRS[name](x, y)
    found = torch.compile(PAIRS[name], backend="torchstone")(x, y)
    tiny = torch.finfo(dtype).tiny
    expected = torch.where(expected.abs() < tiny, 0.0, expected)
    torch.testing.assert_close(found, expected, rtol=4 * torch.finfo(dtype).eps, atol=0.0, equal_nan=True)


def test_all_quotients_are_rounded_once() -> None:
    """Rounding once makes multiples of a number divide to whole numbers."""
    for divisor in (3.0, 7.0, 49.0, 0.1, 1e-20):
        x = torch.arange(1.0, 4096.0) * divisor
        compiled = torch.compile(lambda x, divisor=divisor: x / divisor, backend="torchstone")
        assert torch.equal(compiled(x), x / divisor)


UNTOUCHED = {
    "a power of two": "%c = stablehlo.constant dense<4.0> : tensor<8xf32>\n"
    "%r = stablehlo.divide %x, %c : tensor<8xf32>",
    "a root": "%c = stablehlo.sqrt %x : tensor<8xf32>\n%r = stablehlo.divide %x, %c : tensor<8xf32>",
    "one product": "%c = stablehlo.constant dense<3.0> : tensor<8xf32>\n"
    "%r = stablehlo.multiply %x, %c : tensor<8xf32>",
    "a product without constants": "%c = stablehlo.multiply %x, %x : tensor<8xf32>\n"
    "%r = stablehlo.multiply %c, %x : tensor<8xf32>",
    "a sum of a product": "%c = stablehlo.constant dense<3.0> : tensor<8xf32>\n"
    "%m = stablehlo.multiply %x, %c : tensor<8xf32>\n%r = stablehlo.add %m, %c : tensor<8xf32>",
}


@pytest.mark.parametrize("name", UNTOUCHED)
def test_what_is_safe_is_left_to_the_compiler(name: str) -> None:
    module = f"func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {{\n{UNTOUCHED[name]}\n"
    assert "optimization_barrier" not in rewritten(module + "return %r : tensor<8xf32>\n}")


@pytest.mark.parametrize("dtype", [torch.complex64, torch.bfloat16, torch.float16], ids=str)
def test_other_floats_are_computed_in_order_too(dtype: torch.dtype) -> None:
    x = torch.tensor([1.5, -2.0, 1024.0]).to(dtype)
    compiled = torch.compile(
        lambda x: (x * 2 * 3, x / 4 / 5, x * 0.5 + x * 0.5, x + 2 - 2), backend="torchstone"
    )
    torch.testing.assert_close(compiled(x), (x * 2 * 3, x / 4 / 5, x, x))


def test_integers_are_left_to_the_compiler() -> None:
    module = """func.func @main(%x: tensor<8xi32>) -> tensor<8xi32> {
        %c = stablehlo.constant dense<3> : tensor<8xi32>
        %a = stablehlo.divide %x, %c : tensor<8xi32>
        %b = stablehlo.divide %a, %c : tensor<8xi32>
        return %b : tensor<8xi32> }"""
    assert "optimization_barrier" not in rewritten(module)


def test_constants_of_every_form_are_kept_apart() -> None:
    module = """func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
        %a = stablehlo.constant dense<[1.0e30, 1.0e20]> : tensor<2xf32>
        %b = stablehlo.constant dense<[1.0e-30, 1.0e-20]> : tensor<2xf32>
        %0 = stablehlo.multiply %x, %a : tensor<2xf32>
        %1 = stablehlo.multiply %b, %0 : tensor<2xf32>
        return %1 : tensor<2xf32> }"""
    assert rewritten(module).count("stablehlo.optimization_barrier") == 1


def test_one_divisor_of_many_gets_one_barrier() -> None:
    steps = "\n".join(f"%d{i} = stablehlo.divide %x{i}, %y : tensor<8xf32>" for i in range(3))
    arguments = ", ".join(f"%{name}: tensor<8xf32>" for name in ("x0", "x1", "x2", "y"))
    types = ", ".join(["tensor<8xf32>"] * 3)
    text = rewritten(
        f"func.func @main({arguments}) -> ({types}) {{\n{steps}\nreturn %d0, %d1, %d2 : {types}\n}}"
    )
    assert text.count("stablehlo.optimization_barrier") == 1
