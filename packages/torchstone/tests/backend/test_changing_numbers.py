"""Numbers that change from call to call are arguments of one program, and not parts of many."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from torchstone.backend.records import recorded
from torchstone.torch_internals import pytree

Function = Callable[[torch.Tensor, torch.Tensor, float], Any]

CALLS: dict[str, Function] = {
    "add with alpha": lambda x, y, s: torch.add(x, y, alpha=s),
    "sub with alpha": lambda x, y, s: x.sub(y, alpha=s),
    "rsub with alpha": lambda x, y, s: torch.rsub(x, y, alpha=s),
    "add of a scaled number": lambda x, y, s: torch.add(x, s, alpha=2),  # PyTorch forgets this alpha
    "sub of a scaled number": lambda x, y, s: torch.sub(x, s, alpha=s),
    "addcmul": lambda x, y, s: torch.addcmul(x, y, y, value=s),
    "addcdiv": lambda x, y, s: torch.addcdiv(x, y, y, value=s),
    "addcmul in place": lambda x, y, s: x.clone().addcmul_(y, y, value=s),
    "addcdiv in place": lambda x, y, s: x.clone().addcdiv_(y, y, value=s),
    "lerp": lambda x, y, s: torch.lerp(x, y, s),
    "addmm": lambda x, y, s: torch.addmm(x, y, x, alpha=s, beta=s + 1),
    "pow": lambda x, y, s: x.abs() ** s,
    "power of a number": lambda x, y, s: abs(s) ** x,
    "clamp": lambda x, y, s: x.clamp(-abs(s), abs(s)),
    "where": lambda x, y, s: torch.where(x > 0, x, s),
    "masked_fill": lambda x, y, s: x.masked_fill(x > 0, s),
    "full": lambda x, y, s: torch.full((2, 3), s, dtype=x.dtype),
    "full_like": lambda x, y, s: torch.full_like(x, s),
    "tensor": lambda x, y, s: torch.tensor(s, dtype=x.dtype) * x,
    "remainder": lambda x, y, s: x.remainder(s),
    "list of sums": lambda x, y, s: torch._foreach_add([x, y], [y, x], alpha=s),
    "list of products": lambda x, y, s: torch._foreach_mul([x, y], [s, 2.0]),
    "list of quotients": lambda x, y, s: torch._foreach_addcdiv([x, y], [y, x], [y, x], s),
    "list of powers": lambda x, y, s: torch._foreach_pow([x.abs(), y.abs()], s),
    "list of bounds": lambda x, y, s: torch._foreach_maximum([x, y], s),
    "list in place": lambda x, y, s: _written(x.clone(), y, s),
}


def _written(x: torch.Tensor, y: torch.Tensor, s: float) -> torch.Tensor:
    torch._foreach_addcmul_([x], [y], [y], s)
    return x


SOME = {
    "torch.float32": "add with alpha|add of a scaled number|addcdiv in place|addmm|power of a number|clamp"
    "|where|full|tensor|list of quotients|list in place",
    "torch.bfloat16": "rsub with alpha|lerp|list of sums",
    "torch.float64": "remainder|list of bounds",
}

ROUNDED_FIRST = ("add with alpha", "sub with alpha", "rsub with alpha", "add of a scaled number")
ROUNDED_FIRST += ("sub of a scaled number", "remainder", "pow", "list of sums", "list of powers")
"""Calls in which eager PyTorch's 16-bit kernels round the number before they compute."""


@pytest.mark.kept(*(f"{call}-{dtype}" for dtype, calls in SOME.items() for call in calls.split("|")))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", CALLS)
def test_calls(name: str, dtype: torch.dtype) -> None:
    """Compare with eager PyTorch, at least in float32: at a tensor's end, 16-bit kernels round in between."""
    call, wide = CALLS[name], torch.promote_types(dtype, torch.float32)
    x, y = torch.randn(3, 3, dtype=dtype), torch.randn(3, 3, dtype=dtype)
    torch._dynamo.reset()
    compiled = torch.compile(call, backend="torchstone", fullgraph=True)
    with recorded() as graphs:
        for number in (0.3, 0.7, -2.5, 0.123456789):
            found = pytree.tree_leaves(compiled(x, y, number))
            given = torch.tensor(number, dtype=dtype).item() if name in ROUNDED_FIRST else number
            expected = pytree.tree_leaves(call(x.to(wide), y.to(wide), given))
            torch.testing.assert_close(found, [one.to(dtype) for one in expected], equal_nan=True)
    assert len(graphs) == 2  # one for the first number, one for any other


@pytest.mark.parametrize("dtype", [None, torch.int64, torch.bool, torch.complex64], ids=str)
def test_fills(dtype: torch.dtype | None) -> None:
    """The filled values have the dtype asked for, and a tensor's memory order is kept."""

    def call(x: torch.Tensor, s: float) -> tuple[torch.Tensor, ...]:
        return torch.full((2, 3), s, dtype=dtype), torch.full_like(x, s, dtype=dtype)

    torch._dynamo.reset()
    compiled = torch.compile(call, backend="torchstone", fullgraph=True)
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    with recorded() as graphs:
        for number in (2.5, -0.0, 3.75, float("inf") if dtype is torch.complex64 else 0.5):
            found, expected = compiled(x, number), call(x, number)
            torch.testing.assert_close(found, expected, rtol=0, atol=0, check_stride=True)
    assert len(graphs) == 2


def test_gradients() -> None:
    def call(x: torch.Tensor, s: float) -> torch.Tensor:
        return torch.add(x, x.sin(), alpha=s).lerp(x, s).sum()

    compiled = torch.compile(call, backend="torchstone", fullgraph=True)
    for number in (0.3, 0.7, 1.5):
        x = torch.randn(4, dtype=torch.float64, requires_grad=True)
        found, expected = (torch.autograd.grad(one(x, number), x)[0] for one in (compiled, call))
        torch.testing.assert_close(found, expected)


OPTIMIZERS: list[tuple[str, dict[str, Any]]] = [
    *(("SGD", options) for options in ({}, {"momentum": 0.9, "nesterov": True}, {"weight_decay": 0.1})),
    *((name, {}) for name in ("Adam", "AdamW", "NAdam", "RAdam", "Adamax", "ASGD", "Adagrad", "Adadelta")),
    *((name, {}) for name in ("RMSprop", "Rprop")),
]


@pytest.mark.kept("SGD-0-single", "AdamW--foreach")
@pytest.mark.parametrize("foreach", [False, True], ids=["single", "foreach"])
@pytest.mark.parametrize(("name", "options"), OPTIMIZERS, ids=lambda one: one if isinstance(one, str) else "")
def test_learning_rates(name: str, options: dict[str, Any], foreach: bool) -> None:
    """Train with a learning rate schedule, the optimizer's step compiled apart from the model."""
    torch._dynamo.reset()
    trained = []
    for compiled in (True, False):
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 3)
        optimizer = getattr(torch.optim, name)(model.parameters(), lr=0.1, foreach=foreach, **options)
        step = torch.compile(optimizer.step, backend="torchstone") if compiled else optimizer.step
        with recorded() as graphs:
            for index in range(5):
                optimizer.param_groups[0]["lr"] = 0.1 / (index + 1)
                optimizer.zero_grad()
                model(torch.randn(5, 4)).square().sum().backward()
                step()
        if compiled:
            assert len(graphs) <= 2
            assert not any(graph.fallbacks for graph in graphs)
        trained.append(list(model.parameters()))
    torch.testing.assert_close(*trained, rtol=1e-5, atol=1e-5)


def _scaled(a: torch.Tensor, s: float) -> torch.Tensor:
    a.mul_(1.5)
    return a * s


def _counted(a: torch.Tensor, s: float) -> torch.Tensor:
    a.add_(s)
    torch.sub(a, 1, out=a)
    return a.exp()


def _read(a: torch.Tensor, s: float) -> torch.Tensor:
    a.add_(1)
    return torch.ones(2) * a.item() + s


def _broken(a: torch.Tensor, s: float) -> torch.Tensor:
    a.mul_(2)
    torch._dynamo.graph_break()
    a.div_(s)
    return a + 1


@pytest.mark.parametrize("function", [_scaled, _counted, _read, _broken])
def test_a_number_in_float64_is_changed_in_place(function: Callable[[torch.Tensor, float], Any]) -> None:
    """Dynamo alone drops such calls, because it takes them for reads of a number that it knows."""
    compiled = torch.compile(function, backend="torchstone")
    ours, eager = (torch.tensor(2.0, dtype=torch.float64) for _ in range(2))
    for s in (0.5, 0.75, 3.0, 0.25):
        torch.testing.assert_close(compiled(ours, s), function(eager, s))
        torch.testing.assert_close(ours, eager)
