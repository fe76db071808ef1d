"""Optimizers of PyTorch: 20 compiled steps equal eager's, numbers change freely, state is eager's."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.optim import _muon as muon

import torchstone
from torchstone.errors import TrainingError
from training_loops import assert_same_training, batches, eager_step

Optimizer = torch.optim.Optimizer
Parameters = Iterable[torch.nn.Parameter]
optim = torch.optim

OPTIMIZERS: dict[str, tuple[Callable[[Parameters], Optimizer], int]] = {
    "Adadelta": (lambda p: optim.Adadelta(p, lr=0.5, weight_decay=0.01), 2),
    "Adafactor": (lambda p: optim.Adafactor(p, lr=0.01), 2),
    "Adagrad": (lambda p: optim.Adagrad(p, lr=0.05, lr_decay=0.1), 1),
    "Adam": (lambda p: optim.Adam(p, lr=0.01, fused=True), 2),
    "Adam-amsgrad": (lambda p: optim.Adam(p, lr=0.01, amsgrad=True, maximize=True), 2),
    "Adam-tensor": (lambda p: optim.Adam(p, lr=torch.tensor(0.01)), 2),
    "AdamW": (lambda p: optim.AdamW(p, lr=0.01, foreach=True), 2),
    "Adamax": (lambda p: optim.Adamax(p, lr=0.01), 2),
    "ASGD": (lambda p: optim.ASGD(p, lr=0.05, t0=5), 3),
    "NAdam": (lambda p: optim.NAdam(p, lr=0.01, decoupled_weight_decay=True), 2),
    "RAdam": (lambda p: optim.RAdam(p, lr=0.01, weight_decay=0.01), 3),
    "RMSprop": (lambda p: optim.RMSprop(p, lr=0.01, centered=True, momentum=0.5), 2),
    "Rprop": (lambda p: optim.Rprop(p, lr=0.01), 2),
    "SGD": (lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, foreach=True), 2),
    "SGD-plain": (lambda p: optim.SGD(p, lr=0.1), 1),
}
"""Optimizers, and the number of programs for 20 steps: one that makes the state, and one for each branch."""


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3))


@pytest.mark.kept("SGD", "Rprop")
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizer_equals_eager(name: str) -> None:
    make, programs = OPTIMIZERS[name]
    model, expected = network(), network()
    optimizer, expected_optimizer = make(model.parameters()), make(expected.parameters())
    step = torchstone.compile_step(model, optimizer, F.cross_entropy)
    for inputs, targets in batches(20):
        step(inputs, targets)
        eager_step(expected, expected_optimizer, inputs, targets)
        for one in (optimizer, expected_optimizer):
            for group in one.param_groups:
                group["lr"] *= 0.98
    assert_same_training(model, optimizer, expected, expected_optimizer)
    assert step.programs == programs


BRANCHING = {"ASGD": "mu", "RAdam": "step"}
"""Optimizers that branch on a value that each step changes, and that value's name."""


@pytest.mark.kept("Adam-tensor", "SGD-plain")
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_exported_step_equals_eager(name: str) -> None:
    make, _ = OPTIMIZERS[name]
    model, expected = network(), network()
    optimizer, expected_optimizer = make(model.parameters()), make(expected.parameters())
    if name in BRANCHING:
        with pytest.raises(TrainingError, match=rf"branches on optimizer\.state\.0\.bias\.{BRANCHING[name]}"):
            torchstone.export_step(model, optimizer, F.cross_entropy, next(batches(1)))
        return
    step = torchstone.export_step(model, optimizer, F.cross_entropy, next(batches(1)))
    for inputs, targets in batches(20):
        loss = step(inputs, targets)
        torch.testing.assert_close(loss, eager_step(expected, expected_optimizer, inputs, targets))
        (group,) = expected_optimizer.param_groups
        group["lr"] *= 0.98
        if name != "Rprop":  # Rprop reads the rate only in its first step
            step.load_state({"optimizer.param_groups.0.lr": group["lr"]})
    found = {name: torch.from_numpy(value.copy()) for name, value in step.state().items()}
    for parameter, weight in expected.named_parameters():
        torch.testing.assert_close(found[parameter], weight.detach())
        for key, value in expected_optimizer.state[weight].items():
            if value is not None:
                torch.testing.assert_close(
                    found[f"optimizer.state.{parameter}.{key}"], torch.as_tensor(value)
                )


@pytest.mark.kept("Adam-tensor", "SGD-plain")
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_state_moves_between_eager_and_compiled_steps(name: str) -> None:
    """Five compiled steps, five eager ones and five compiled ones are 15 eager ones."""
    make, _ = OPTIMIZERS[name]
    expected = network()
    expected_optimizer = make(expected.parameters())
    weights, state = network().state_dict(), None
    data = list(batches(15))
    for part in range(3):
        model = network()
        model.load_state_dict(weights)
        optimizer = make(model.parameters())
        if state is not None:
            optimizer.load_state_dict(state)
        step = torchstone.compile_step(model, optimizer, F.cross_entropy) if part != 1 else None
        for inputs, targets in data[5 * part : 5 * part + 5]:
            if step is None:
                eager_step(model, optimizer, inputs, targets)
            else:
                step(inputs, targets)
            eager_step(expected, expected_optimizer, inputs, targets)
        weights, state = copy.deepcopy(model.state_dict()), copy.deepcopy(optimizer.state_dict())
    assert_same_training(model, optimizer, expected, expected_optimizer)


def trained_by_muon(*, compiled: bool) -> torch.Tensor:
    """The weights after 20 steps."""
    torch.manual_seed(0)
    layers = (torch.nn.Linear(8, 16, bias=False), torch.nn.Tanh(), torch.nn.Linear(16, 3, bias=False))
    model = torch.nn.Sequential(*layers)
    optimizer = optim.Muon(model.parameters(), lr=0.01)
    step = torchstone.compile_step(model, optimizer, F.cross_entropy) if compiled else None
    for inputs, targets in batches(20):
        if step is None:
            eager_step(model, optimizer, inputs, targets)
        else:
            step(inputs, targets)
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def test_muon_is_as_near_as_eager_to_steps_that_orthogonalize_in_float64(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Muon iterates in bfloat16, where eager and compiled code round in different orders."""
    eager, ours = trained_by_muon(compiled=False), trained_by_muon(compiled=True)
    source = inspect.getsource(muon._zeropower_via_newtonschulz)
    assert source.count(".bfloat16()") == 1
    names = vars(muon) | {}
    exec(source.replace(".bfloat16()", ".double()"), names)
    wide = names["_zeropower_via_newtonschulz"]
    monkeypatch.setattr(
        muon, "_zeropower_via_newtonschulz", lambda grad, *rest: wide(grad, *rest).to(grad.dtype)
    )
    exact = trained_by_muon(compiled=False)
    assert (ours - exact).abs().max() <= 2 * (eager - exact).abs().max()


class Heavy(Optimizer):
    """A user's own optimizer: an integer counter, numbers that depend on it, and a branch."""

    def __init__(self, params: Any, lr: float = 0.1) -> None:
        super().__init__(params, {"lr": lr, "decay": 0.5})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["step"] = 0
                    state["mean"] = torch.zeros_like(p)
                state["step"] += 1
                state["mean"] = state["mean"] * group["decay"] + p.grad
                rate = group["lr"] / (1 + 0.1 * state["step"]) ** 0.5
                if state["step"] > 3:
                    rate = min(rate, 0.05)
                p.sub_(state["mean"], alpha=rate)


def test_own_optimizer_with_a_python_counter() -> None:
    model, expected = network(), network()
    optimizer, expected_optimizer = Heavy(model.parameters()), Heavy(expected.parameters())
    step = torchstone.compile_step(model, optimizer, F.cross_entropy)
    for inputs, targets in batches(8):
        step(inputs, targets)
        eager_step(expected, expected_optimizer, inputs, targets)
    assert_same_training(model, optimizer, expected, expected_optimizer)
    assert step.programs == 3


def test_optimizer_that_needs_a_closure_is_refused() -> None:
    model = network()
    with pytest.raises(
        TrainingError, match=r"LBFGS\.step takes a closure.*\n  next: keep the model in torch"
    ):
        torchstone.compile_step(model, optim.LBFGS(model.parameters()), F.cross_entropy)


def test_optimizer_of_sparse_gradients_is_refused() -> None:
    model = torch.nn.Embedding(4, 3, sparse=True)
    with pytest.raises(
        TrainingError, match=r"SparseAdam needs sparse gradients.*\n  next: use torch\.optim\.Adam"
    ):
        torchstone.compile_step(model, optim.SparseAdam(model.parameters()), F.mse_loss)
