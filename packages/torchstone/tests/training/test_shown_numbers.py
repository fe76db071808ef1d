"""Numbers of the optimizer that the loss and hooks read: as in eager PyTorch, without another program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import torchstone
from torchstone.errors import CaptureError
from training_loops import batches, eager_step, mlp

Tensor = torch.Tensor
Optimizer = torch.optim.Optimizer
Make = Callable[[Any, Any], Callable[[Tensor, Tensor], Tensor]]


def adam(model: Any) -> Optimizer:
    return torch.optim.Adam(model.parameters(), lr=0.1)


def in_the_loss(model: Any, optimizer: Any) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda out, targets: F.cross_entropy(out, targets) * (1 + optimizer.param_groups[0]["lr"])


def in_a_pair(model: Any, optimizer: Any) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda out, targets: F.cross_entropy(out, targets) * optimizer.param_groups[0]["betas"][0]


def in_a_group(model: Any, optimizer: Any) -> Callable[[Tensor, Tensor], Tensor]:
    groups, group = optimizer.param_groups, optimizer.param_groups[0]
    return lambda out, targets: F.cross_entropy(out, targets) * (groups[0]["lr"] + group["lr"])


def in_a_hook_of_a_parameter(model: Any, optimizer: Any) -> Callable[[Tensor, Tensor], Tensor]:
    model[0].weight.register_hook(lambda grad: grad + optimizer.param_groups[0]["lr"])
    return F.cross_entropy


def in_a_hook_of_the_optimizer(model: Any, optimizer: Any) -> Callable[[Tensor, Tensor], Tensor]:
    def add(*_: Any) -> None:
        for p in model.parameters():
            p.grad.add_(optimizer.param_groups[0]["lr"])

    optimizer.register_step_pre_hook(add)
    return F.cross_entropy


class Own(torch.optim.SGD):
    """An optimizer of the user's, whose attributes are followed."""


READERS: dict[str, tuple[Make, Callable[[Any], Optimizer]]] = {
    "loss": (in_the_loss, adam),
    "pair": (in_a_pair, adam),
    "group": (in_a_group, adam),
    "hook of a parameter": (in_a_hook_of_a_parameter, adam),
    "hook of the optimizer": (in_a_hook_of_the_optimizer, adam),
    "class of the user's": (in_the_loss, lambda model: Own(model.parameters(), lr=0.1)),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", READERS)
def test_numbers_that_schedulers_change(name: str) -> None:
    """Adam's first step is a program of its own, because it makes the state."""
    make, optimizer_of = READERS[name]
    model, expected = mlp(), mlp()
    optimizer, expected_optimizer = optimizer_of(model), optimizer_of(expected)
    loss_fn, expected_loss = make(model, optimizer), make(expected, expected_optimizer)
    step = torchstone.compile_step(model, optimizer, loss_fn)
    for place, (inputs, targets) in enumerate(batches(4)):
        for one in (optimizer, expected_optimizer):
            one.param_groups[0]["lr"] = 0.1 / (place + 1)
            if "betas" in one.param_groups[0]:
                one.param_groups[0]["betas"] = (0.9 - 0.1 * place, 0.99)
        wanted = eager_step(expected, expected_optimizer, inputs, targets, expected_loss)
        torch.testing.assert_close(step(inputs, targets), wanted)
        assert optimizer.param_groups[0]["lr"] == 0.1 / (place + 1)
    torch.testing.assert_close(model.state_dict(), expected.state_dict())
    assert step.programs == (1 if isinstance(optimizer, Own) else 2)


def test_a_returned_rate_and_accumulation() -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)

    def loss_fn(out: Tensor, targets: Tensor) -> Any:
        return F.cross_entropy(out, targets), optimizer.param_groups[0]["lr"]

    step = torchstone.compile_step(model, optimizer, loss_fn)
    for lr, batch in zip((0.5, 0.25, 0.125), batches(3), strict=True):
        optimizer.param_groups[0]["lr"] = lr
        assert step.accumulate(*batch)[1] == lr
        assert step(*batch)[1] == lr
    assert type(optimizer.param_groups[0]["lr"]) is float


def test_a_branch_on_the_rate() -> None:
    model, expected = mlp(), mlp()
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.1) for one in (model, expected)]

    def loss_of(optimizer: Optimizer) -> Callable[[Tensor, Tensor], Tensor]:
        return lambda out, targets: (
            F.cross_entropy(out, targets) * (2 if optimizer.param_groups[0]["lr"] > 0.05 else 1)
        )

    step = torchstone.compile_step(model, optimizers[0], loss_of(optimizers[0]))
    for lr, batch in zip((0.1, 0.08, 0.04, 0.02, 0.1), batches(5), strict=True):
        for one in optimizers:
            one.param_groups[0]["lr"] = lr
        wanted = eager_step(expected, optimizers[1], *batch, loss_of(optimizers[1]))
        torch.testing.assert_close(step(*batch), wanted)
    assert step.programs == 2


def uses_a_scheduler(optimizer: Any) -> Callable[[], Any]:
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    return lambda: scheduler.get_last_lr()[0]


def counts_epochs(optimizer: Any) -> Callable[[], Any]:
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    return lambda: scheduler.last_epoch


def runs_a_scheduler(optimizer: Any) -> Callable[[], Any]:
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)

    def stepped() -> float:
        scheduler.step()
        return 1.0

    return stepped


def reads_the_first_rate(optimizer: Any) -> Callable[[], Any]:
    torch.optim.lr_scheduler.StepLR(optimizer, 1)
    return lambda: 2 * optimizer.param_groups[0]["initial_lr"]


def reads_another_optimizer(optimizer: Any) -> Callable[[], Any]:
    other = torch.optim.SGD(mlp().parameters(), lr=0.1)
    return lambda: other.param_groups[0]["lr"]


def sets_the_rate(optimizer: Any) -> Callable[[], Any]:
    def halved() -> float:
        optimizer.param_groups[0]["lr"] *= 0.5
        return 1.0

    return halved


REFUSED: dict[str, tuple[Callable[[Any], Callable[[], Any]], str]] = {
    "last rate": (uses_a_scheduler, r"StepLR \(its '_last_lr'\).*test_shown_numbers\.py"),
    "epoch": (counts_epochs, r"StepLR \(its 'last_epoch'\).*test_shown_numbers\.py"),
    "scheduler's step": (runs_a_scheduler, r"StepLR \(its '_step_count'\).*test_shown_numbers\.py"),
    "first rate": (reads_the_first_rate, "reads 'initial_lr' in a group of the optimizer"),
    "another optimizer": (reads_another_optimizer, "uses the groups of another SGD"),
    "a new rate": (sets_the_rate, r"changes optimizer\.param_groups\[0\]\['lr'\] from 0\.1 to 0\.05"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_an_argument_is_refused(name: str) -> None:
    make, message = REFUSED[name]
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    factor = make(optimizer)
    groups = [dict(group) for group in optimizer.param_groups]
    step = torchstone.compile_step(
        model, optimizer, lambda out, targets: F.cross_entropy(out, targets) * factor()
    )
    before = {key: value.clone() for key, value in model.state_dict().items()}
    for _ in range(2):
        with pytest.raises(CaptureError, match=message):
            step(*next(batches(1)))
    torch.testing.assert_close(model.state_dict(), before)
    assert optimizer.param_groups == groups
