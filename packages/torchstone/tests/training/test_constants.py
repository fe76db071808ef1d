"""Tensors that the loss refers to and that are not state: every step reads and writes them, as in eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
from torch.distributions import Independent, Normal
from torch.nn import functional as F

import torchstone
from torchstone.errors import CaptureError, TrainingError
from training_loops import batches, eager_step, mlp

Tensor = torch.Tensor


class Weights:
    """Weights of classes, over the memory of a NumPy array."""

    def __init__(self) -> None:
        self.array = numpy.ones(3, dtype=numpy.float32)
        self.tensor = torch.from_numpy(self.array)

    def loss(self, out: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(out * (1 + self.tensor * 2), targets)


def through_data(weights: Weights, value: float) -> None:
    weights.tensor.data.fill_(value)


def through_numpy(weights: Weights, value: float) -> None:
    weights.array[1] = value


def other_data(weights: Weights, value: float) -> None:
    weights.tensor.data = torch.full((3,), value)


def other_shape(weights: Weights, value: float) -> None:
    weights.tensor.data = torch.full((32, 3) if value == 2 else (3,), value)


def in_place(weights: Weights, value: float) -> None:
    weights.tensor.fill_(value)


WRITES: dict[str, tuple[Callable[[Weights, float], None], int]] = {
    "data": (through_data, 1),
    "numpy": (through_numpy, 1),
    "other data": (other_data, 1),
    "other shape": (other_shape, 2),
    "in place": (in_place, 1),
}


@pytest.mark.parametrize("name", WRITES)
def test_writes_between_steps(name: str) -> None:
    write, programs = WRITES[name]
    model, expected = mlp(), mlp()
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.1) for one in (model, expected)]
    weights, expected_weights = Weights(), Weights()
    step = torchstone.compile_step(model, optimizers[0], weights.loss)
    for value, batch in zip((1.0, 2.0, 3.0), batches(3), strict=True):
        for one in (weights, expected_weights):
            if value > 1:
                write(one, value)
        wanted = eager_step(expected, optimizers[1], *batch, expected_weights.loss)
        torch.testing.assert_close(step(*batch), wanted)
    torch.testing.assert_close(model.state_dict(), expected.state_dict())
    assert step.programs == programs


def counting(seen: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
    def loss_fn(out: Tensor, targets: Tensor) -> Tensor:
        seen.add_(1)
        return F.cross_entropy(out, targets) * seen.sum()

    return loss_fn


def keeping(seen: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
    def loss_fn(out: Tensor, targets: Tensor) -> Tensor:
        loss = F.cross_entropy(out, targets)
        seen.copy_(loss.detach())
        return loss * (1 + seen.sum())

    return loss_fn


@pytest.mark.parametrize("make", [counting, keeping])
def test_writes_of_the_step(make: Callable[[Tensor], Callable[[Tensor, Tensor], Tensor]]) -> None:
    model, expected = mlp(), mlp()
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.1) for one in (model, expected)]
    seen, expected_seen = torch.zeros(2), torch.zeros(2)
    step, loss_fn = torchstone.compile_step(model, optimizers[0], make(seen)), make(expected_seen)
    for batch in batches(3):
        wanted = eager_step(expected, optimizers[1], *batch, loss_fn)
        torch.testing.assert_close(step(*batch), wanted)
        torch.testing.assert_close(seen, expected_seen)
    torch.testing.assert_close(model.state_dict(), expected.state_dict())
    assert step.programs == 1


def test_a_refused_step_writes_nothing() -> None:
    whole = torch.zeros(3)
    part = whole[1:]

    def loss_fn(out: Tensor, targets: Tensor) -> Any:
        part.add_(1)
        return F.cross_entropy(out, targets) if out.sum() > 0 else None

    model = mlp()
    step = torchstone.compile_step(model, torch.optim.SGD(model.parameters(), lr=0.1), loss_fn)
    with pytest.raises(CaptureError, match="looks at the value of a tensor"):
        step(*next(batches(1)))
    assert whole.tolist() == [0, 0, 0]


LOOKS: dict[str, Callable[[Tensor], Any]] = {
    "nonzero": lambda own: own.nonzero().sum(),
    "tolist": lambda own: sum(own.tolist()),
    "of a result": lambda own: (own * 2).sum().item(),
    "float": lambda own: float(own[0] + own[1]),
    "a branch": lambda own: 2.0 if own.sum() > 3 else 1.0,
    "a new tensor": lambda own: torch.tensor([own[0], own[1]]).sum(),
    "a mask": lambda own: torch.arange(1.0, 4.0)[own > 1].sum(),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", LOOKS)
def test_writes_to_what_the_code_looks_at(name: str) -> None:
    """The program stands for these values, so other values need another program."""
    look = LOOKS[name]
    model, expected = mlp(), mlp()
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.1) for one in (model, expected)]
    own, other = torch.ones(3), torch.zeros(3)

    def loss_fn(out: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(out + other, targets) * (1 + look(own))

    step = torchstone.compile_step(model, optimizers[0], loss_fn)
    for place, batch in enumerate(batches(4)):
        own[1] = 1.0 + place // 2
        other.fill_(place)
        wanted = eager_step(expected, optimizers[1], *batch, loss_fn)
        torch.testing.assert_close(step(*batch), wanted)
    torch.testing.assert_close(model.state_dict(), expected.state_dict())


def test_a_memory_bank() -> None:
    """What the user writes between steps is read, and other tensors that code looks at do not matter."""
    model, expected = mlp(), mlp()
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.1) for one in (model, expected)]
    bank, mask = torch.zeros(8, 3), torch.tensor([True, False, True])

    def loss_fn(out: Tensor, targets: Tensor) -> Tensor:
        near = (out @ bank.t()).logsumexp(1).mean()
        return F.cross_entropy(out, targets) + near + out[:, mask.nonzero()[:, 0]].square().mean()

    step = torchstone.compile_step(model, optimizers[0], loss_fn)
    for place, batch in enumerate(batches(6)):
        bank[place].fill_(place + 1)
        wanted = eager_step(expected, optimizers[1], *batch, loss_fn)
        torch.testing.assert_close(step(*batch), wanted)
    torch.testing.assert_close(model.state_dict(), expected.state_dict())
    assert step.programs == 1


def test_a_write_that_buckets_refuse_is_undone() -> None:
    seen = torch.zeros(2)
    model = mlp()

    def loss_fn(out: Tensor, targets: Tensor) -> Tensor:
        seen.add_(1)
        return F.cross_entropy(out, targets, reduction="none")

    step = torchstone.compile_step(model, torch.optim.SGD(model.parameters(), lr=0.1), loss_fn, buckets=[64])
    for _ in range(2):
        with pytest.raises(TrainingError, match="that its code refers to") as error:
            step(*next(batches(1)))
        assert seen.tolist() == [0, 0]
    assert "make it a buffer of the model" in str(error.value)


def distribution() -> Any:
    normal = Normal(torch.zeros(3), torch.ones(3), validate_args=False)
    return Independent(normal, 1, validate_args=False)


def other_mean(prior: Any, value: float) -> None:
    prior.base_dist.loc = torch.full((3,), value)


def mean_in_place(prior: Any, value: float) -> None:
    prior.base_dist.loc.fill_(value)


@pytest.mark.parametrize(("change", "programs"), [(other_mean, 3), (mean_in_place, 1)])
def test_distributions(change: Callable[[Any, float], None], programs: int) -> None:
    model, expected = mlp(), mlp()
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.1) for one in (model, expected)]
    priors = [distribution() for _ in range(2)]

    def loss_of(prior: Any) -> Callable[[Tensor, Tensor], Tensor]:
        return lambda out, targets: F.cross_entropy(out, targets) - prior.log_prob(out).mean()

    step = torchstone.compile_step(model, optimizers[0], loss_of(priors[0]))
    for place, batch in enumerate(batches(3)):
        for prior in priors:
            change(prior, place + 1.0)
        wanted = eager_step(expected, optimizers[1], *batch, loss_of(priors[1]))
        torch.testing.assert_close(step(*batch), wanted)
    torch.testing.assert_close(model.state_dict(), expected.state_dict())
    assert step.programs == programs
