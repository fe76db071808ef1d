"""Tensors of a batch: what a step writes into them, what they have in common, and where they come from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import torchstone
from torchstone.errors import NotFinite, TrainingError
from training_loops import mlp

Tensor = torch.Tensor
Loss = Callable[[torch.nn.Module, Any], Tensor]


def pair(loss: Loss) -> tuple[Any, Any, torch.nn.Module, torch.nn.Module]:
    """A compiled step and an eager one, with their models."""
    model, expected = mlp(), mlp()
    step = torchstone.compile_step(model, torch.optim.SGD(model.parameters(), lr=0.1), loss)
    optimizer = torch.optim.SGD(expected.parameters(), lr=0.1)

    def eager(batch: Any) -> Tensor:
        optimizer.zero_grad()
        result = loss(expected, batch)
        result.backward()
        optimizer.step()
        return result.detach()

    return step, eager, model, expected


def examples(count: int) -> list[Tensor]:
    return list(torch.randn(count, 4, 8, generator=torch.Generator().manual_seed(0)))


def normalized(model: torch.nn.Module, batch: Any) -> Tensor:
    batch["x"].sub_(batch["x"].mean())[0].mul_(2)
    batch["more"][0].data += 1
    loss: Tensor = (model(batch["x"]) + batch["more"][0].mean()).square().mean()
    return loss


def test_writes_into_the_batch() -> None:
    """The writes show in the caller's tensors, and in other tensors that share their memory."""
    step, eager, model, expected = pair(normalized)
    for x in examples(3):
        mine, theirs = (dict[str, Any](x=one, more=[one + 1]) for one in (x.clone(), x.clone()))
        view, version = mine["x"][0], mine["x"]._version
        torch.testing.assert_close(step(mine), eager(theirs))
        torch.testing.assert_close(mine, theirs)
        torch.testing.assert_close(view, theirs["x"][0])
        assert mine["x"]._version > version
    assert step.programs == 1
    torch.testing.assert_close(model.state_dict(), expected.state_dict())


def test_writes_through_strides() -> None:
    step, eager, _, _ = pair(lambda model, x: model(x.mul_(2)).square().mean())
    for x in examples(2):
        mine, theirs = x.T.contiguous().T, x.clone()
        torch.testing.assert_close(step(mine), eager(theirs))
        torch.testing.assert_close(mine, theirs)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("other", [lambda x: x, lambda x: x[0], lambda x: x.view(-1)])
def test_a_write_that_another_tensor_shows_is_refused(other: Callable[[Tensor], Tensor]) -> None:
    def loss(model: torch.nn.Module, batch: Any) -> Tensor:
        result: Tensor = model(batch[0].mul_(2)).square().mean() * batch[1].mean()
        return result

    step, eager, model, _ = pair(loss)
    x, y = examples(2)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    message = "writes into a tensor that has memory in common with another"
    with pytest.raises(TrainingError, match=message):
        step((x, other(x)))
    apart = x.clone(), other(y)
    torch.testing.assert_close(model.state_dict(), before)
    torch.testing.assert_close(step(apart), eager((x.clone(), other(y))))
    kept, before = x.clone(), {key: value.clone() for key, value in model.state_dict().items()}
    with pytest.raises(TrainingError, match=message):  # the error is raised even if there is a program
        step((x, other(x)))
    torch.testing.assert_close(x, kept)
    torch.testing.assert_close(model.state_dict(), before)


def test_a_batch_stays_as_it_is_where_a_step_is_left_out() -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = torchstone.compile_step(
        model, optimizer, lambda model, x: (model(x.mul_(2)) / x.sum()).sum(), nonfinite="raise"
    )
    x = torch.ones(4, 8)
    x[::2] = -1
    before = x.clone()
    with pytest.raises(NotFinite):
        step(x)
    torch.testing.assert_close(x, before)


def test_a_write_into_a_padded_batch_is_refused() -> None:
    model = mlp()
    step = torchstone.compile_step(
        model,
        torch.optim.SGD(model.parameters()),
        lambda model, x: model(x.mul_(2)).square().mean(1),
        buckets=(8,),
    )
    x = examples(1)[0]
    before = x.clone()
    with pytest.raises(TrainingError, match="writes into a tensor of the batch, which is padded"):
        step(x)
    torch.testing.assert_close(x, before)


def test_one_tensor_twice_is_one_tensor_in_the_step() -> None:
    def loss(model: torch.nn.Module, batch: Any) -> Tensor:
        result: Tensor = model(batch["a"] + 2 * batch["b"]).square().mean()
        (slope,) = torch.autograd.grad(result, batch["a"], create_graph=True)
        return result + slope.square().sum() * (2 if batch["a"] is batch["b"] else 3)

    step, eager, _, _ = pair(loss)
    for x in examples(2):
        x.requires_grad_()
        torch.testing.assert_close(step({"a": x, "b": x}), eager({"a": x, "b": x}))
        x, y = (x.detach().clone().requires_grad_() for _ in range(2))
        torch.testing.assert_close(step({"a": x, "b": y}), eager({"a": x, "b": y}))
    assert step.programs == 2


def test_a_tensor_of_the_state_is_refused() -> None:
    step, _, model, _ = pair(lambda model, batch: (model(batch[0]) @ batch[1]).square().mean())
    x, weight = examples(1)[0], model[2].weight  # type: ignore[index]
    message = r"a tensor over the memory of 2\.weight, which the step has too(.|\n)*detach\(\)\.clone\(\)"
    before = weight.detach().clone()
    with pytest.raises(TrainingError, match=message):
        step((x, weight))
    with pytest.raises(TrainingError, match=message):
        step((x, weight.detach()[:]))
    torch.testing.assert_close(weight.detach(), before)
    step((x, before))


def test_a_tensor_with_a_history_of_gradients_is_refused() -> None:
    """Gradients would flow to parameters that were used before the step."""
    step, _, model, _ = pair(lambda model, batch: model[2](batch).square().mean())  # type: ignore[index]
    hidden = model[:2](examples(1)[0])  # type: ignore[index]
    with pytest.raises(TrainingError, match=r"computed with gradients \(TanhBackward0\)(.|\n)*detach\(\)"):
        step(hidden)
    step(hidden.detach())
