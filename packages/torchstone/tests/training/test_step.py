"""``compile_step`` against eager PyTorch: values, state, memory, and the number of programs."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F

import torchstone
from torchstone.errors import TrainingError
from torchstone.runtime import stats
from training_loops import assert_same_training, batches, eager_step, mlp


def sgd(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)


def adam(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=0.01)


@pytest.mark.conformance
def test_20_steps_equal_eager() -> None:
    model, expected = mlp(), mlp()
    optimizer, expected_optimizer = sgd(model), sgd(expected)
    step = torchstone.compile_step(model, optimizer, F.cross_entropy)
    for inputs, targets in batches(20):
        loss = step(inputs, targets)
        torch.testing.assert_close(loss, eager_step(expected, expected_optimizer, inputs, targets))
        assert not loss.requires_grad
    assert_same_training(model, optimizer, expected, expected_optimizer)
    assert step.programs == 2  # the first step makes the momentum


def test_loss_fn_may_take_the_model_and_the_batch() -> None:
    model, expected = mlp(), mlp()
    optimizer, expected_optimizer = sgd(model), sgd(expected)

    def loss_fn(model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        return F.cross_entropy(model(batch["x"]), batch["y"])

    step = torchstone.compile_step(model, optimizer, loss_fn)
    for inputs, targets in batches(3):
        step({"x": inputs, "y": targets})
        eager_step(expected, expected_optimizer, inputs, targets)
    assert_same_training(model, optimizer, expected, expected_optimizer)


def test_state_is_updated_in_place_and_never_copied() -> None:
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    step = torchstone.compile_step(model, optimizer, F.cross_entropy)
    inputs, targets = next(batches(1))
    step(inputs, targets)
    step(inputs, targets)
    state = [value for kept in optimizer.state.values() for value in kept.values()]
    tensors = [*model.parameters(), *state]
    weight, view = next(model.parameters()), next(model.parameters()).detach()
    addresses, copies = [tensor.data_ptr() for tensor in tensors], stats().copies_in
    before, version = weight.detach().clone(), weight._version
    for _ in range(5):
        step(inputs, targets)
    assert [tensor.data_ptr() for tensor in tensors] == addresses
    assert stats().copies_in == copies
    assert not torch.equal(weight, before)
    assert torch.equal(view, weight)  # a view shows every step, as in eager PyTorch
    assert weight._version > version


def test_memory_outlives_the_step() -> None:
    model = mlp()
    optimizer = sgd(model)
    step = torchstone.compile_step(model, optimizer, F.cross_entropy)
    inputs, targets = next(batches(1))
    step(inputs, targets)
    expected = copy.deepcopy(model.state_dict())
    view = next(model.parameters()).detach()
    del step
    eager_step(model, optimizer, inputs, targets)
    assert not torch.equal(view, expected["0.weight"])
    assert torch.equal(view, next(model.parameters()))


@pytest.mark.kept("compiled-sgd")
@pytest.mark.parametrize("make", [sgd, adam], ids=["sgd", "adam"])
@pytest.mark.parametrize("first", ["eager", "compiled"])
def test_state_dicts_are_interchanged_with_eager_in_the_middle(
    first: str, make: Callable[[torch.nn.Module], torch.optim.Optimizer]
) -> None:
    """Ten steps compiled or eager, a save, a load and ten steps the other way equal twenty eager steps."""
    expected = mlp()
    expected_optimizer = make(expected)
    models = [mlp(), mlp()]
    optimizers = [make(model) for model in models]
    roads = ["eager", "compiled"] if first == "eager" else ["compiled", "eager"]
    feed = list(batches(20))
    for part, (model, optimizer, road) in enumerate(zip(models, optimizers, roads, strict=True)):
        step = torchstone.compile_step(model, optimizer, F.cross_entropy)
        if part:
            saved = io.BytesIO()
            torch.save((models[0].state_dict(), optimizers[0].state_dict()), saved)
            saved.seek(0)
            weights, state = torch.load(saved)
            model.load_state_dict(weights)
            optimizer.load_state_dict(state)
        for inputs, targets in feed[10 * part : 10 * part + 10]:
            if road == "eager":
                eager_step(model, optimizer, inputs, targets)
            else:
                step(inputs, targets)
    for inputs, targets in feed:
        eager_step(expected, expected_optimizer, inputs, targets)
    assert_same_training(models[1], optimizers[1], expected, expected_optimizer)


def test_eager_steps_evaluation_and_loading_between_compiled_steps() -> None:
    model, expected = mlp(), mlp()
    optimizer, expected_optimizer = sgd(model), sgd(expected)
    step = torchstone.compile_step(model, optimizer, F.cross_entropy)
    for number, (inputs, targets) in enumerate(batches(9)):
        eager_step(expected, expected_optimizer, inputs, targets)
        if number % 3 == 1:
            eager_step(model, optimizer, inputs, targets)
            optimizer.zero_grad()
        else:
            step(inputs, targets)
        if number == 5:  # give the same values new storage and new objects
            model.load_state_dict(copy.deepcopy(model.state_dict()), assign=True)
            optimizer = sgd(model)
            optimizer.load_state_dict(copy.deepcopy(expected_optimizer.state_dict()))
            step = torchstone.compile_step(model, optimizer, F.cross_entropy)
        torch.testing.assert_close(model(inputs), expected(inputs))
    assert_same_training(model, optimizer, expected, expected_optimizer)


def test_other_data_of_parameters_is_seen() -> None:
    model, expected = mlp(), mlp()
    optimizer, expected_optimizer = sgd(model), sgd(expected)
    step = torchstone.compile_step(model, optimizer, F.cross_entropy)
    inputs, targets = next(batches(1))
    for kind in (torch.float32, torch.float64, torch.float32):
        model.to(kind)
        expected.to(kind)
        for one in (optimizer, expected_optimizer):
            for state in one.state.values():
                state["momentum_buffer"] = state["momentum_buffer"].to(kind)
        step(inputs.to(kind), targets)
        eager_step(expected, expected_optimizer, inputs.to(kind), targets)
    with torch.no_grad():
        for one in (model, expected):
            next(one.parameters()).mul_(2)
            next(one.parameters()).data = next(one.parameters()).data + 1
    step(inputs, targets)
    eager_step(expected, expected_optimizer, inputs, targets)
    assert_same_training(model, optimizer, expected, expected_optimizer)


def test_optimizer_over_other_parameters_is_refused() -> None:
    step = torchstone.compile_step(mlp(), sgd(mlp()), F.cross_entropy)
    with pytest.raises(
        TrainingError, match=r"the optimizer updates 4 parameter\(s\) that the model does not have, the first"
    ):
        step(*next(batches(1)))


@pytest.mark.parametrize(
    ("loss_fn", "message"),
    [
        (lambda model, x: model(x), r"a torch.float32 tensor of shape \[32, 3\]: a loss is one real number"),
        (
            lambda model, x: model(x).argmax(),
            r"a torch.int64 tensor of shape \[\]: a loss is one real number",
        ),
        (lambda model, x: model(x).detach().sum(), "the loss does not depend on a parameter"),
        (lambda model, x: None, "loss_fn returned None, in which there is no loss"),
        (lambda model, x: {"total": model(x).sum()}, "loss_fn returned a dict, in which there is no loss"),
        (lambda model, x: model(x).sum().item() * 2, "loss_fn returned a float, in which there is no loss"),
    ],
)
def test_loss_that_is_not_one_is_refused(loss_fn: object, message: str) -> None:
    model = mlp()
    before = copy.deepcopy(model.state_dict())
    step = torchstone.compile_step(model, sgd(model), loss_fn)  # type: ignore[arg-type]
    with pytest.raises(torchstone.errors.TorchstoneError, match=message):
        step(next(batches(1))[0])
    torch.testing.assert_close(model.state_dict(), before)


def test_metrics_come_out_of_the_step() -> None:
    model = mlp()

    def loss_fn(model: torch.nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> dict[str, object]:
        outputs = model(batch[0])
        right = (outputs.argmax(1) == batch[1]).float().mean()
        loss = F.cross_entropy(outputs, batch[1])
        return {"loss": loss, "outputs": [outputs, outputs.t()], "right": right.item(), "name": "train"}

    inputs, targets = next(batches(1))
    expected = loss_fn(model, (inputs, targets))
    found = torchstone.compile_step(model, sgd(model), loss_fn)((inputs, targets))
    assert found.pop("name") == expected.pop("name")
    torch.testing.assert_close(found, expected)
    assert type(found["right"]) is float
    assert found["outputs"][1].stride() == (1, 3)


def test_call_without_a_batch_is_refused() -> None:
    model = mlp()
    with pytest.raises(TrainingError, match=r"the step was called with 3 arguments\n  next: call step\("):
        torchstone.compile_step(model, sgd(model), F.cross_entropy)(1, 2, 3)


def test_engine_without_shared_memory_is_refused() -> None:
    model = mlp()
    with (
        torchstone.config.override(engine="reference"),
        pytest.raises(
            TrainingError, match=r"the engine reference on .* cannot update PyTorch's memory in place"
        ),
    ):
        torchstone.compile_step(model, sgd(model), F.cross_entropy)


def test_failed_check_leaves_the_state_alone() -> None:
    model = torch.nn.Sequential(torch.nn.Embedding(4, 3), torch.nn.Linear(3, 3))
    before = copy.deepcopy(model.state_dict())
    optimizer = sgd(model)
    with torchstone.config.override(check_indices=True):
        step = torchstone.compile_step(model, optimizer, lambda model, x: model(x).square().sum())
        with pytest.raises(torchstone.errors.IndexOutOfRange):
            step(torch.tensor([1, 4]))
    torch.testing.assert_close(model.state_dict(), before)
    assert not any(optimizer.state.values())
    assert step(torch.tensor([1, 3])) > 0
