"""Values that code of a step looks at: constants work as in eager PyTorch, other values are refused."""

from __future__ import annotations

import copy
import inspect
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import torchstone
from torchstone.errors import CaptureError

Tensor = torch.Tensor
Model = Callable[[Tensor], Tensor]
Loss = Callable[[Model, Tensor], Tensor]


class Reversed(torch.autograd.Function):
    """The identity; its derivative looks up which gradients are nonzero."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        places = grads[0].nonzero()
        return grads[0] * len(places)


def degrees(model: Model, x: Tensor) -> Tensor:
    """Count how often each number is in ``x``."""
    return torch.zeros(6, dtype=torch.int64).scatter_add_(0, x, torch.ones_like(x))


def written(model: Model, x: Tensor) -> Tensor:
    counts = torch.zeros(6, dtype=torch.int64)
    counts[1] = x[0]
    return counts


def total(x: Tensor) -> Tensor:
    """Return a 0-d tensor to which a number of the batch was added."""
    return torch.zeros((), dtype=torch.int64).add_(x.sum())


def rows(x: Tensor) -> Tensor:
    """Return six rows for a model that takes four numbers."""
    return torch.linspace(-1, 1, 24).view(6, 4) + x.sum()


SIZES: dict[str, Loss] = {
    "nonzero": lambda model, x: model(rows(x))[(degrees(model, x) == 1).nonzero().view(-1)].sum(),
    "its length": lambda model, x: model(rows(x)).sum() * len(degrees(model, x).nonzero()),
    "a mask": lambda model, x: model(rows(x))[written(model, x) > 0].sum(),
    "a mask of results": lambda model, x: (lambda y: y[y > 0].sum())(model(rows(x))),
    "unique": lambda model, x: model(rows(x)).sum() * len(torch.unique(degrees(model, x))),
    "repeat_interleave": lambda model, x: model(rows(x).repeat_interleave(written(model, x), 0)).sum(),
    "random numbers": lambda model, x: model(rows(x))[torch.rand(6) > 0.5].sum(),
    "in the backward pass": lambda model, x: Reversed.apply(model(rows(x))).sum(),
}
LOOKS: dict[str, Loss] = {
    "a maximum": lambda model, x: model(rows(x)).sum() * int(degrees(model, x).max()),
    "if": lambda model, x: model(rows(x)).sum() * (2 if (written(model, x) == 0).all() else 3),
    "if on 0-d": lambda model, x: model(rows(x)).sum() * (2 if total(x) == 0 else 3),
    "tolist": lambda model, x: model(rows(x)).sum() * sum(degrees(model, x).tolist()),
    "numpy": lambda model, x: model(rows(x)).sum() * float(degrees(model, x).numpy().max()),
    "asarray": lambda model, x: model(rows(x)).sum() * float(np.asarray(degrees(model, x)).max()),
    "equal": lambda model, x: model(rows(x)).sum() * torch.equal(degrees(model, x), torch.ones(6)),
    "a view": lambda model, x: model(rows(x)).sum() * int(degrees(model, x).view(2, 3)[0, 1]),
    "another tensor": lambda model, x: model(rows(x)).sum() * int((degrees(model, x) * 2 + 1).sum()),
    "a random number": lambda model, x: model(rows(x)).sum() * (2 if torch.rand([]) < 0.5 else 3),
    "random integers": lambda model, x: model(rows(x)).sum() * torch.randint(9, (3,)).tolist()[0],
    "a random permutation": lambda model, x: model(rows(x)).sum() * int(torch.randperm(6)[0]),
}


def under_a_seed(model: Model, x: Tensor) -> Tensor:
    torch.manual_seed(0)
    return F.dropout(model(rows(x))).sum()


def drawn_twice(model: Model, x: Tensor) -> Tensor:
    state = torch.get_rng_state()
    first = F.dropout(model(rows(x)))
    torch.set_rng_state(state)
    return (first - F.dropout(model(rows(x)))).sum()


GENERATOR = torch.Generator()
NUMBERS, OWN = np.random.default_rng(0), random.Random(0)
OTHER_DRAWS: dict[str, tuple[Loss, str]] = {
    "random": (lambda model, x: model(rows(x)).sum() * random.random(), "draws with random.random"),
    "shuffle": (
        lambda model, x: random.shuffle([1, 2]) or model(rows(x)).sum(),
        "draws with random.shuffle",
    ),
    "numpy": (lambda model, x: model(rows(x)).sum() * np.random.beta(1, 1), "draws with numpy.random.beta"),
    "generator": (
        lambda model, x: (model(rows(x)) * torch.rand(3, generator=GENERATOR)).sum(),
        "draws from a generator of its own",
    ),
    "a seed": (under_a_seed, "calls torch.manual_seed"),
    "a state": (drawn_twice, "calls torch.set_rng_state"),
}


class Mixed(torch.nn.Module):
    """A model that keeps a NumPy generator, and draws in a function that it calls."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers = np.random.RandomState(0)

    def forward(self, result: Tensor) -> Tensor:
        return self._share() * result.sum()

    def _share(self) -> float:
        return self._numbers.beta(0.5, 0.5)


MIXED = Mixed()


def share() -> float:
    return OWN.random()


GENERATORS: dict[str, tuple[Loss, str]] = {
    "a global": (
        lambda model, x: model(rows(x)).sum() * NUMBERS.beta(1, 1),
        "NUMBERS, a numpy.random.Generator,",
    ),
    "a function": (lambda model, x: model(rows(x)).sum() * share(), "OWN, a random.Random,"),
    "a default": (
        lambda model, x, own=OWN: own.random() * model(rows(x)).sum(),
        "<lambda>, a random.Random,",
    ),
    "a module": (
        lambda model, x: MIXED(model(rows(x))),
        r"MIXED\._numbers, a numpy.random.RandomState,",
    ),
}


def step_of(loss: Loss) -> tuple[Any, torch.nn.Linear]:
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 3)
    return torchstone.compile_step(model, torch.optim.SGD(model.parameters(), lr=0.1), loss), model


@pytest.mark.parametrize("name", SIZES)
def test_a_size_that_values_decide_is_refused(name: str) -> None:
    step, _ = step_of(SIZES[name])
    with pytest.raises(
        CaptureError, match=r"the size of the result of aten\.\w+\.\w+ depends on values"
    ) as found:
        step(torch.tensor([0, 1, 1, 5]))
    line = inspect.getsourcelines(Reversed.backward if "backward" in name else SIZES[name])[1]
    assert f"test_values.py:{line + 2 if 'backward' in name else line}: " in str(found.value)
    assert "next: compute with a mask (torch.where" in str(found.value)


@pytest.mark.parametrize("name", LOOKS)
def test_a_value_that_is_another_in_the_next_step_is_refused(name: str) -> None:
    step, _ = step_of(LOOKS[name])
    with pytest.raises(CaptureError, match="looks at the value of a tensor") as found:
        step(torch.tensor([0, 1, 1, 5]))
    assert f"test_values.py:{inspect.getsourcelines(LOOKS[name])[1]}: " in str(found.value)


def conditional(model: Model, x: Tensor) -> Tensor:
    found: Tensor = torch.cond(x.sum() > 0, torch.sin, torch.cos, (model(rows(x)),))
    return found.sum()


def test_control_flow_is_refused() -> None:
    step, _ = step_of(conditional)
    with pytest.raises(CaptureError, match=r"calls cond, and .*test_values\.py:\d+: found") as found:
        step(torch.tensor([0, 1, 1, 5]))
    assert "next: compute both sides of a condition (torch.where)" in str(found.value)


@pytest.mark.parametrize("name", OTHER_DRAWS)
def test_random_numbers_past_the_default_generator_are_refused(name: str) -> None:
    loss, message = OTHER_DRAWS[name]
    step, _ = step_of(loss)
    before = random.getstate(), np.random.get_state()[2]
    with pytest.raises(CaptureError, match=rf"{message}.*test_values\.py:\d+: ") as found:
        step(torch.tensor([0, 1, 1, 5]))
    assert "next: " in str(found.value)
    assert (random.getstate(), np.random.get_state()[2]) == before
    random.random()
    np.random.beta(1, 1)


@pytest.mark.parametrize("name", GENERATORS)
def test_generators_that_a_step_draws_from_are_refused(name: str) -> None:
    loss, message = GENERATORS[name]
    step, _ = step_of(loss)
    before = NUMBERS.bit_generator.state, OWN.getstate()
    with pytest.raises(CaptureError, match=f"draws from {message} while the step is traced") as found:
        step(torch.tensor([0, 1, 1, 5]))
    assert "next: draw with PyTorch" in str(found.value)
    assert (NUMBERS.bit_generator.state, OWN.getstate()) == before


def test_a_generator_without_a_seed_is_refused() -> None:
    step, _ = step_of(lambda model, x: model(rows(x)).sum() * np.random.default_rng().random())
    with pytest.raises(CaptureError, match=r"makes a generator without a seed .*test_values\.py:\d+: "):
        step(torch.tensor([0, 1, 1, 5]))


def test_a_generator_that_is_there_and_one_with_a_seed_are_taken() -> None:
    def loss(model: Model, x: Tensor) -> Tensor:
        assert NUMBERS is not None
        return model(rows(x)).square().sum() * np.random.default_rng(3).random()

    step, model = step_of(loss)
    x = torch.tensor([0, 1, 1, 5])
    expected = loss(model, x).detach()
    torch.testing.assert_close(step(x), expected)


def seeded(model: Model, x: Tensor) -> Tensor:
    np.random.seed(3)
    random.seed(3)
    return model(rows(x)).square().sum() * np.random.rand() * random.random()


def off_diagonal(model: Model, x: Tensor) -> Tensor:
    """Similarities of different rows, as contrastive losses take them."""
    found = model(rows(x)) @ model(rows(x)).T
    mask = torch.eye(6, dtype=torch.bool)
    return F.cross_entropy(found[~mask].view(6, -1), torch.zeros(6, dtype=torch.int64))


def filled(model: Model, x: Tensor) -> Tensor:
    made = torch.zeros(6, 3)
    made[torch.arange(6) > 2] = model(rows(x))[:3]
    return made.square().sum()


def constant_table(model: Model, x: Tensor) -> Tensor:
    table = torch.zeros(4, dtype=torch.int64)
    table[1], table[2] = 5, 2
    assert torch.equal(table, torch.tensor([0, 5, 2, 0]))
    return model(rows(x)).square().sum() * sum(table.tolist()) * int(table.max()) * int(table[2])


def of_sequences(model: Model, x: Tensor) -> Tensor:
    """Return a loss whose operator has results with sizes that are bounded by values."""
    scores = model(rows(x)).log_softmax(-1)
    of_lists = F.ctc_loss(scores, torch.tensor([1, 2]), (6,), (2,))
    return of_lists + F.ctc_loss(scores[:, None], x[None].abs() % 2 + 1, torch.tensor([6]), x[:1] * 0 + 2)


CONSTANTS: dict[str, Loss] = {
    "lengths": of_sequences,
    "nonzero": lambda model, x: model(rows(x))[(torch.arange(6) > 2).nonzero().view(-1)].square().sum(),
    "a mask": lambda model, x: model(rows(x))[torch.arange(6) > 2].square().sum(),
    "a mask among indices": lambda model, x: model(rows(x))[:, torch.arange(3) != 1].square().sum(),
    "off the diagonal": off_diagonal,
    "a mask that is written through": filled,
    "a table": constant_table,
    "numbers under a seed": seeded,
    "no layers left out": lambda model, x: model(rows(x)).square().sum() * (1 if torch.rand([]) < 0.0 else 2),
    "all layers left out": lambda model, x: model(rows(x)).square().sum() * (1 if torch.rand(()) < 1 else 2),
    "none left out": lambda model, x: model(rows(x)).square().sum() * (1 if torch.rand([]) >= 0.0 else 2),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", CONSTANTS)
def test_values_of_constants(name: str) -> None:
    step, model = step_of(CONSTANTS[name])
    torch.manual_seed(0)
    expected = torch.nn.Linear(4, 3)
    optimizer = torch.optim.SGD(expected.parameters(), lr=0.1)
    for x in (torch.tensor([0, 0, 1]), torch.tensor([0, 0, 0]), torch.tensor([-1, 0, 0])):
        found = step(x)
        optimizer.zero_grad()
        loss = CONSTANTS[name](expected, x)
        loss.backward()
        optimizer.step()
        torch.testing.assert_close(found, loss.detach())
    torch.testing.assert_close(model.state_dict(), expected.state_dict())


class Stepped(torch.optim.SGD):
    """SGD that divides gradients by the number of the step, which it adds to a tensor of its own."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for p in self.param_groups[0]["params"]:
            state = self.state[p]
            state.setdefault("step", torch.zeros(()))
            state["step"] += 1
            count = torch.ones(()).mul_(state["step"])
            assert count == state["step"]
            p.data.add_(p.grad, alpha=-0.1 / count.item())


def test_a_counter_that_is_written_into_a_new_tensor_is_followed() -> None:
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 3)
    expected = copy.deepcopy(model)
    step = torchstone.compile_step(model, Stepped(model.parameters(), lr=0.1), CONSTANTS["nonzero"])
    optimizer = Stepped(expected.parameters(), lr=0.1)
    for x in (torch.tensor([0, 0, 1]), torch.tensor([0, 0, 0]), torch.tensor([-1, 0, 0])):
        step(x)
        optimizer.zero_grad()
        CONSTANTS["nonzero"](expected, x).backward()
        optimizer.step()
    torch.testing.assert_close(model.state_dict(), expected.state_dict())
