"""Training in which rounding decides between branches is judged step by step, and wrong steps are found."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import nullcontext
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import nn

from torchstone.parity import steps, verify
from torchstone.parity.model import Model
from torchstone.parity.steps import State, Values
from torchstone.parity.subject import Subject
from torchstone.parity.suite import load
from torchstone.parity.verification import Verification

STEPS = 3
LAST = 3
"""The number of calls in training mode before the last step: one for gradients, and two steps."""


class Branches(nn.Module):
    """Takes one of two branches in each call: float64 takes one, and float32 takes the other.

    With ``mixed``, calls alternate between them, as a run does whose roundings differ from eager's. No run of
    eager does that, in any precision. ``fault`` names an error of the last step, and ``drift`` is one of all
    steps.
    """

    def __init__(self) -> None:
        super().__init__()
        self.mixed, self.fault, self.drift = False, "", 0.0
        self.linear, self.norm = nn.Linear(8, 8), nn.BatchNorm1d(8)
        self.register_buffer("calls", torch.tensor(0))
        self.register_buffer("constant", torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert isinstance(self.calls, torch.Tensor)
        assert isinstance(self.constant, torch.Tensor)
        is_last = self.calls == LAST
        taken = self.calls % 2 == 0 if self.mixed else torch.tensor(x.dtype == torch.float64)
        weight = self.linear.weight
        if self.fault == "gradient":  # of the last step, 1.01 times the right one
            weight = weight + 0.01 * is_last * (weight - weight.detach())
        y = nn.functional.linear(self.norm(x), weight, self.linear.bias)
        if self.fault == "loss":
            y = y + 0.01 * is_last
        if self.training:
            self.calls.add_(1)
            self.constant.mul_(1 + self.drift)
            if self.fault == "buffer":
                self.constant.add_(0.01 * is_last)
        return torch.where(taken, 1.25 * y, y) + 1


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Verification]:
    """Return a function that compares training steps; its arguments are set in the compiled model only."""
    monkeypatch.setattr(verify, "STAGES", ())
    through_compile, step_values = Subject.compiled, steps.step_values

    def run(optimizer: str = "sgd", **changes: Any) -> Verification:
        def changed(subject: Subject) -> Subject:
            for name, value in changes.items():
                setattr(subject.model, name, value)
            return subject

        monkeypatch.setattr(
            Subject, "compiled", lambda own, **options: through_compile(changed(own), **options)
        )
        monkeypatch.setattr(verify, "step_values", lambda own, *rest: step_values(changed(own), *rest))
        torch.manual_seed(0)
        model = Model("branches", Branches(), (torch.randn(16, 8),))
        return verify.verify(model, steps=STEPS, optimizer=optimizer)

    return run


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_steps_that_go_between_branches_pass(trained: Callable[..., Verification], optimizer: str) -> None:
    found = trained(optimizer, mixed=True)
    assert found.passed, found.notes
    for stage, note in zip(("training", "step"), found.notes, strict=True):
        assert re.fullmatch(
            rf"{stage}: \d+ differ after 3 steps; "
            r"judged step by step: rounding decides between branches \(in steps? [123, ]+\), no step differs",
            note,
        )
        names = [check.name for check in found.checks if check.stage == stage]
        for number in (1, 2, 3):
            assert f"step {number}: loss {number - 1}" in names
            assert f"step {number}: update of linear.weight" in names
            assert (f"step {number}: gradient of linear.weight" in names) == (number == 1)


def test_training_within_the_tolerance_is_not_repeated(trained: Callable[..., Verification]) -> None:
    found = trained()
    assert found.passed
    assert found.notes == []
    assert not any(check.name.startswith("step ") for check in found.checks)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("gradient", {"sgd": "momentum_buffer", "adamw": "exp_avg"}),
        ("loss", {"sgd": "loss 2", "adamw": "loss 2"}),
        ("buffer", {"sgd": "buffer constant", "adamw": "buffer constant"}),
    ],
)
def test_a_fault_of_the_last_step_is_found(
    trained: Callable[..., Verification], fault: str, expected: dict[str, str], optimizer: str
) -> None:
    found = trained(optimizer, mixed=True, fault=fault)
    assert not found.passed
    for stage, note in zip(("training", "step"), found.notes, strict=True):
        assert f"{stage}: " in note
        assert "judged step by step: step 3 differs by itself (" in note
        names = [one.name for one in found.failures if one.stage == stage and one.name.startswith("step ")]
        assert all(name.startswith("step 3: ") for name in names)
        assert any(expected[optimizer] in name for name in names), names


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("optimizer", "setting", "factor"),
    [("sgd", "lr", 1.01), ("sgd", "momentum", 0.99), ("adamw", "lr", 1.01), ("adamw", "weight_decay", 0)],
)
def test_a_wrong_update_is_found(
    monkeypatch: pytest.MonkeyPatch,
    trained: Callable[..., Verification],
    optimizer: str,
    setting: str,
    factor: float,
) -> None:
    """The whole step updates with another setting than eager does. The settings are no part of a state."""
    right = steps.compile_step

    def wrong(model: nn.Module, own: torch.optim.Optimizer, loss: Callable[..., Any]) -> Any:
        own.param_groups[0][setting] *= factor
        return right(model, own, loss)

    monkeypatch.setattr(steps, "compile_step", wrong)
    found = trained(optimizer, mixed=True)
    assert {one.stage for one in found.failures} == {"step"}
    number = 2 if setting == "momentum" else 1  # there is no momentum before the first step
    assert f"judged step by step: step {number} differs by itself (" in found.notes[1]
    assert f"step {number}: update of linear.weight" in {one.name for one in found.failures}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", ["gradient", "loss", "parameter", "update", "optimizer's", "buffer norm"])
def test_a_wrong_value_of_the_whole_run_is_not_excused(
    monkeypatch: pytest.MonkeyPatch, trained: Callable[..., Verification], kind: str
) -> None:
    right = steps.compiled_values

    def wrong(*arguments: Any) -> Values:
        found = right(*arguments)
        return {
            name: one * 1.01 if name.startswith(kind) and one.is_floating_point() else one
            for name, one in found.items()
        }

    monkeypatch.setattr(verify, "compiled_values", wrong)
    found = trained(mixed=True)
    assert {one.stage for one in found.failures} == {"training"}
    assert "not judged step by step: the compiled training gave another" in found.notes[0]


def test_an_error_that_adds_up_is_not_excused_where_rounding_decides_nothing(
    trained: Callable[..., Verification],
) -> None:
    found = trained(drift=5e-6)
    assert {one.name for one in found.failures} == {"buffer constant"}
    assert {one.stage for one in found.failures} == {"training", "step"}
    for note in found.notes:
        assert note.endswith("no step differs by itself, and rounding decides nothing in any step"), note


class Random(nn.Module):
    """Draws random numbers, and has parameters and buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.inner(x)
        return found


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_a_step_starts_from_all_that_it_depends_on(optimizer: str) -> None:
    torch.manual_seed(0)
    given = Subject(Random(), (torch.randn(16, 4),), {})
    seen: list[tuple[State, Values]] = []

    def watch(state: State, values: Values) -> None:
        before = torch.get_rng_state()
        again = steps.eager_step(state.given_to(given.copy(training=True)), optimizer, state)
        assert torch.equal(torch.get_rng_state(), before)
        assert again.keys() == values.keys()
        assert all(torch.equal(one, again[name]) for name, one in values.items())
        seen.append((state, values))

    whole = steps.compiled_values(
        given.copy(training=True), optimizer, STEPS, nullcontext(), lambda own: own, watch
    )
    assert [state.step for state, _ in seen] == [0, 1, 2]
    assert torch.equal(seen[-1][1]["parameter inner.0.weight"], whole["parameter inner.0.weight"])
    for (_, left), (state, _) in pairwise(seen):  # what is seen stays as it was
        assert torch.equal(left["parameter inner.0.weight"], state.tensors["inner.0.weight"])
        assert torch.equal(left["buffer inner.1.running_mean"], state.tensors["inner.1.running_mean"])


@pytest.mark.conformance
def test_a_deep_network_behind_batch_norms_over_two_values() -> None:
    pytest.importorskip("transformers", reason="the extra torchstone[models] is not installed")
    found = verify.verify(load("resnet18"), steps=STEPS)
    assert found.passed, found.notes
