"""Associative scans that are linear recurrences: their operator, and how training steps recognize them."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torchstone
from torchstone.compiler.operators import linear_recurrence
from torchstone.torch_internals.patches import patched
from training_loops import assert_same_training

own = torch.ops.torchstone
associative_scan: Any = pytest.importorskip("torch._higher_order_ops.associative_scan").associative_scan
module: Any = sys.modules[associative_scan.__module__]


def one_by_one(a: Tensor, b: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Return running products of ``a``, and the recurrence, step by step."""
    products, states = [a.select(dim, 0)], [b.select(dim, 0)]
    for t in range(1, a.shape[dim]):
        products.append(products[-1] * a.select(dim, t))
        states.append(a.select(dim, t) * states[-1] + b.select(dim, t))
    return torch.stack(products, dim), torch.stack(states, dim)


# The operator ----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_the_operator_is_the_recurrence_and_its_transposed_map(dim: int, dtype: torch.dtype) -> None:
    a, b, c = (torch.randn(4, 3, 5, dtype=dtype) for _ in range(3))
    expected = one_by_one(a, b, dim)[1]
    torch.testing.assert_close(own.linear_recurrence(a, b, dim, False), expected)
    forth, back = own.linear_recurrence(a, b, dim, False), own.linear_recurrence(a, c, dim, True)
    torch.testing.assert_close((forth * c).sum(), (b * back).sum())  # the definition of a transposed map


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("shape", "dim"), [((4, 2), 0), ((2, 3), -1), ((2, 1), 1)])
def test_gradients_of_gradients(shape: tuple[int, ...], dim: int, reverse: bool, dtype: torch.dtype) -> None:
    a, b = (torch.randn(shape, dtype=dtype, requires_grad=True) for _ in range(2))

    def run(a: Tensor, b: Tensor) -> Tensor:
        return own.linear_recurrence(a, b, dim, reverse)

    assert torch.autograd.gradcheck(run, (a, b))
    assert torch.autograd.gradgradcheck(run, (a, b))


@pytest.mark.parametrize(
    ("shapes", "dim", "message"),
    [
        (((3, 2), (3, 1)), 0, r"differ: torch.float32\[3, 2\] and torch.float32\[3, 1\]"),
        (((3,), (3,)), 1, "the input has 1 axes, but dim is 1"),
        (((0, 2), (0, 2)), 0, "expected at least one step"),
    ],
)
def test_arguments_of_other_shapes(shapes: Any, dim: int, message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        own.linear_recurrence(*(torch.zeros(shape) for shape in shapes), dim, False)


@pytest.mark.parametrize("dtype", [torch.int64, torch.float8_e5m2, torch.bool])
def test_other_dtypes(dtype: torch.dtype) -> None:
    with pytest.raises(RuntimeError, match=f"not implemented for {dtype}"):
        own.linear_recurrence(torch.zeros(1, dtype=dtype), torch.zeros(1, dtype=dtype), 0, False)


# Scans in training steps -----------------------------------------------------------------


def by_operators(before: Any, now: Any) -> Any:
    return before[0] * now[0], now[0] * before[1] + now[1]


def by_functions(before: Any, now: Any) -> Any:
    return torch.mul(before[0], now[0]), torch.add(now[1], torch.mul(before[1], now[0]))


def in_one_call(before: Any, now: Any) -> Any:
    return now[0] * before[0], torch.addcmul(now[1], now[0], before[1])


def other_way_round(before: Any, now: Any) -> Any:
    return now[1] * before[0] + now[0], before[1] * now[1]


def in_a_dict(before: Any, now: Any) -> Any:
    return {"a": before["a"] * now["a"], "b": now["a"] * before["b"] + now["b"]}


def subtracted(before: Any, now: Any) -> Any:
    return before[0] * now[0], now[0] * before[1] - (-now[1])


def clamped(before: Any, now: Any) -> Any:
    return before[0] * now[0], torch.maximum(now[0] * before[1], now[1])


def twice(before: Any, now: Any) -> Any:
    return before[0] + now[0], before[1] + now[1]


def scaled(before: Any, now: Any) -> Any:
    return before[0] * now[0], torch.add(now[1], now[0] * before[1], alpha=1)


def with_two_states(before: Any, now: Any) -> Any:
    return before[0] * now[0], now[0] * before[1] + now[1], now[0] * before[2] + now[2]


class Recurrent(nn.Module):
    """A scan of a parameter and of the input; ``used`` are the results that the output depends on."""

    def __init__(self, combine: Callable[..., Any], used: Any, dim: int, reverse: bool, leaves: int) -> None:
        super().__init__()
        self.combine, self.used, self.dim, self.reverse, self.leaves = combine, used, dim, reverse, leaves
        self.rates = nn.Parameter(torch.rand(3, 6, 4))

    def forward(self, x: Tensor) -> Tensor:
        rates, given = torch.sigmoid(self.rates), x * self.rates
        leaves: Any = [rates, given, given.sin()][: self.leaves]
        if self.combine is other_way_round:
            leaves = leaves[::-1]
        if self.combine is in_a_dict:
            leaves = {"a": leaves[0], "b": leaves[1]}
        options = {"dim": self.dim, "reverse": self.reverse, "combine_mode": "generic"}
        found = associative_scan(self.combine, leaves, **options)
        results = list(found.values()) if isinstance(found, dict) else list(found)
        return torch.stack([results[place] for place in self.used]).sum(0)


def recognized_in_steps(model: nn.Module, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Train three steps beside eager PyTorch; return whether each scan was a linear recurrence."""
    seen: list[bool] = []
    real = linear_recurrence._scanned

    def scanned(*given: Any) -> Any:
        found = real(*given)
        seen.append(found is not None)
        return found

    monkeypatch.setattr(linear_recurrence, "_scanned", scanned)
    twin = copy.deepcopy(model)
    optimizer, other = (torch.optim.SGD(one.parameters(), lr=0.1) for one in (model, twin))
    step = torchstone.compile_step(model, optimizer, nn.functional.mse_loss)
    x, target = torch.randn(3, 6, 4), torch.randn(3, 6, 4)
    for _ in range(3):
        loss = step(x, target)
        expected = nn.functional.mse_loss(twin(x), target)
        expected.backward()
        other.step()
        other.zero_grad()
        torch.testing.assert_close(loss, expected.detach())
    assert_same_training(model, optimizer, twin, other)
    return seen


@pytest.mark.parametrize(
    ("combine", "used"),
    [
        (by_operators, [1]),
        (by_operators, [0, 1]),
        (by_functions, [1]),
        (in_one_call, [1]),
        (other_way_round, [0, 1]),
        (in_a_dict, [0, 1]),
    ],
)
@pytest.mark.parametrize(("dim", "reverse"), [(1, False), (0, True)])
def test_linear_recurrences_are_recognized(
    combine: Callable[..., Any], used: list[int], dim: int, reverse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Recurrent(combine, used, dim, reverse, leaves=2)
    assert recognized_in_steps(model, monkeypatch) == [True]


@pytest.mark.parametrize("combine", [subtracted, clamped, twice, scaled, with_two_states])
def test_other_scans_stay_as_they_are(combine: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    model = Recurrent(combine, [1], 1, reverse=False, leaves=3 if combine is with_two_states else 2)
    assert recognized_in_steps(model, monkeypatch) == [False]


def test_leaves_of_two_shapes_or_of_integers_are_not_recognized() -> None:
    a, b = torch.rand(6, 1), torch.rand(6, 4)
    integers = torch.arange(1, 7)
    with patched(*linear_recurrence.linear_recurrences()):
        broadcast = associative_scan(by_operators, (a, b), 0, combine_mode="generic")
        counted = associative_scan(by_operators, (integers, integers), 0, combine_mode="generic")
    torch.testing.assert_close(broadcast[1], one_by_one(a.expand(6, 4), b, 0)[1])
    assert torch.equal(counted[1], one_by_one(integers, integers, 0)[1])


def test_a_pytorch_without_the_function_scans_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(module, "generic_associative_scan")
    assert linear_recurrence.linear_recurrences() == []
