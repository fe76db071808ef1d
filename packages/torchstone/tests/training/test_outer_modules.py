"""Modules that only the loss refers to: teachers, frozen features, averages that the user keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import torchstone
from torchstone.errors import CaptureError

Tensor = torch.Tensor
STEPS = 5


def net(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


def distilled(teacher: nn.Module) -> Callable[[nn.Module, Any], Tensor]:
    def loss_fn(model: nn.Module, batch: Any) -> Tensor:
        out = model(batch[0])
        with torch.no_grad():
            wanted = teacher(batch[0]).softmax(1)
        return F.cross_entropy(out, batch[1]) + F.kl_div(out.log_softmax(1), wanted, reduction="batchmean")

    return loss_fn


def perceptual(features: nn.Module) -> Callable[[nn.Module, Any], Tensor]:
    """The gradients of this loss flow through ``features`` to the model."""

    def loss_fn(model: nn.Module, batch: Any) -> Tensor:
        made = features(model(batch[0]).repeat(1, 2))
        return F.cross_entropy(made, batch[1])

    return loss_fn


def nothing(_: nn.Module, __: int) -> None:
    pass


def averaged(teacher: nn.Module, _: int) -> None:
    with torch.no_grad():
        for p in teacher.parameters():
            p.mul_(0.9)


def data(teacher: nn.Module, _: int) -> None:
    for p in teacher.parameters():
        p.data = p.data * 0.9


def loaded(teacher: nn.Module, place: int) -> None:
    teacher.load_state_dict(net(place + 3).state_dict())


def mode(teacher: nn.Module, place: int) -> None:
    teacher.train(place % 2 == 1)


def dtype(teacher: nn.Module, place: int) -> None:
    teacher.to(torch.float64 if place % 2 else torch.float32)


def in_dtype(teacher: nn.Module) -> Callable[[nn.Module, Any], Tensor]:
    def loss_fn(model: nn.Module, batch: Any) -> Tensor:
        wanted = teacher(batch[0].to(teacher[0].weight.dtype)).float()  # type: ignore[index]
        return F.mse_loss(model(batch[0]), wanted)

    return loss_fn


CASES: dict[str, tuple[Any, bool, bool, Callable[[nn.Module, int], None], int]] = {
    "a teacher": (distilled, False, True, nothing, 1),
    "without no_grad": (in_dtype, False, True, nothing, 1),
    "not frozen, under no_grad": (distilled, False, False, averaged, 1),
    "an average": (distilled, False, True, averaged, 1),
    "data": (distilled, False, True, data, 1),
    "load_state_dict": (distilled, False, True, loaded, 1),
    "train and eval": (distilled, False, True, mode, 2),
    "a dtype": (in_dtype, False, True, dtype, 5),
    "in train mode": (distilled, True, True, nothing, 1),
    "features": (perceptual, False, True, nothing, 1),
    "features in train mode": (perceptual, True, True, loaded, 1),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", CASES)
def test_training_with_another_module(name: str) -> None:
    loss_of, training, frozen, between, programs = CASES[name]
    models, teachers = [net(0), net(0)], [net(1).train(training), net(1).train(training)]
    for one in teachers:
        one.requires_grad_(not frozen)
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.1) for one in models]
    losses = [loss_of(one) for one in teachers]
    step = torchstone.compile_step(models[0], optimizers[0], losses[0])
    torch.manual_seed(2)
    for place in range(STEPS):
        batch = (torch.randn(4, 6), torch.randint(0, 3, (4,)))
        for one in teachers:
            between(one, place)
        optimizers[1].zero_grad()
        wanted = losses[1](models[1], batch)
        wanted.backward()
        optimizers[1].step()
        torch.testing.assert_close(step(batch), wanted.detach())
    torch.testing.assert_close(models[0].state_dict(), models[1].state_dict())
    torch.testing.assert_close(teachers[0].state_dict(), teachers[1].state_dict())
    assert all(p.grad is None for p in teachers[0].parameters())
    assert step.programs == programs


def test_a_teacher_that_would_get_gradients_is_refused() -> None:
    model, teacher = net(0), net(1).eval()
    step = torchstone.compile_step(model, torch.optim.SGD(model.parameters(), lr=0.1), perceptual(teacher))
    batch = (torch.randn(4, 6), torch.randint(0, 3, (4,)))
    with pytest.raises(CaptureError, match=r"a gradient for features\.0\.bias.*\(and for 5 more\)") as error:
        step(batch)
    assert "requires_grad_(False)" in str(error.value)
    teacher.requires_grad_(False)
    step(batch)


class Counting(nn.Linear):
    """A teacher that counts its calls in an attribute, or in a buffer that it assigns."""

    seen: Tensor

    def __init__(self, how: str) -> None:
        super().__init__(6, 3)
        self.how, self.calls = how, 0
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        if self.how == "calls":
            self.calls += 1
        else:
            self.seen = self.seen + x.mean()
        return super().forward(x)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("calls", r"changes teacher\.calls from 0 to 1"),
        ("seen", r"its tensors in teacher\._buffers\['seen'\]"),
    ],
)
def test_a_teacher_that_keeps_something_is_refused(how: str, message: str) -> None:
    model, teacher = net(0), Counting(how)
    before = teacher.seen
    step = torchstone.compile_step(model, torch.optim.SGD(model.parameters(), lr=0.1), distilled(teacher))
    for _ in range(2):
        with pytest.raises(CaptureError, match=message):
            step((torch.randn(4, 6), torch.randint(0, 3, (4,))))
    assert teacher.calls == 0
    assert teacher.seen is before


def test_an_exported_step_has_the_teacher_as_a_constant() -> None:
    """A teacher that updates its buffers is refused: the artifact has no place for them."""
    model, expected, teacher = net(0), net(0), net(1).eval().requires_grad_(False)
    batch = (torch.randn(4, 6), torch.randint(0, 3, (4,)))
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.1) for one in (model, expected)]
    loss_fn = distilled(teacher)
    program = torchstone.export_step(model, optimizers[0], loss_fn, (batch,))
    for _ in range(2):
        optimizers[1].zero_grad()
        wanted = loss_fn(expected, batch)
        wanted.backward()
        optimizers[1].step()
        assert float(program(batch)) == pytest.approx(wanted.item(), abs=1e-5)
    teacher.train()
    before = {name: value.clone() for name, value in teacher.state_dict().items()}
    with pytest.raises(CaptureError, match=r"writes into a tensor torch\.\w+\[8?\] that its code refers to"):
        torchstone.export_step(model, optimizers[0], loss_fn, (batch,))
    torch.testing.assert_close(teacher.state_dict(), before)
