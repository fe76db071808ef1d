"""Numbers and tensors of other dtypes beside 16-bit floats are rounded where eager rounds them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import torchstone  # noqa: F401  registers the backend

NUMBERS = (3.3, -2.6, 1 / 3, 100.7, 2049.3)

OPERATIONS: dict[str, Callable[[torch.Tensor, float], torch.Tensor]] = {
    "remainder": torch.remainder,
    "remainder of a number": lambda x, n: torch.remainder(n, x),
    "remainder by a 0-d tensor": lambda x, n: torch.remainder(x, torch.tensor(n)),
    "fmod": torch.fmod,
    "fmod of a 0-d tensor": lambda x, n: torch.fmod(torch.tensor(n), x),
    "floor_divide": torch.floor_divide,
    "div, rounded down": lambda x, n: torch.div(x, n, rounding_mode="floor"),
    "div, truncated": lambda x, n: torch.div(x, n, rounding_mode="trunc"),
    "div": torch.div,
    "quotient of a number": lambda x, n: n / x,
    "mul": torch.mul,
    "add": torch.add,
    "sub": torch.sub,
    "difference from a number": lambda x, n: n - x,
    "add of a multiple": lambda x, n: torch.add(x, x.flip(0), alpha=n),
    "hypot": lambda x, n: torch.hypot(x, torch.tensor(n)),
    "atan2": lambda x, n: torch.atan2(x, torch.tensor(n)),
    "pow": lambda x, n: x.abs() ** (n % 4),
    "a number's power": lambda x, n: abs(n) ** (x % 4),
    "mul of integers": lambda x, n: x * torch.arange(x.shape[0]),
}

ROUNDED_OTHERWISE = {"add of a multiple": 10, "atan2": 2}
"""How many of 2000 elements may differ: XLA fuses a product and a sum, and eager's atan2 rounds elsewhere."""


@pytest.mark.kept("torch.bfloat16")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_operands_are_rounded_as_in_eager(dtype: torch.dtype) -> None:
    x = torch.linspace(-50, 50, 2001).to(dtype)
    x = x[x != 0]

    def every(x: torch.Tensor) -> list[torch.Tensor]:
        return [operation(x, number) for operation in OPERATIONS.values() for number in NUMBERS]

    found = iter(torch.compile(every, backend="torchstone")(x))
    for name, operation in OPERATIONS.items():
        for number in NUMBERS:
            expected = operation(x, number)
            wrong = int((~torch.isclose(next(found), expected, rtol=0, atol=0, equal_nan=True)).sum())
            allowed = ROUNDED_OTHERWISE.get(name, 0)
            assert wrong <= allowed, f"{name} with {number}: {wrong} of {len(x)} differ"
