"""Steps that run in eager PyTorch, because that was measured to be faster."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.optimizer import register_optimizer_step_pre_hook

import torchstone
from torchstone.backend.records import recorded
from torchstone.config import override
from torchstone.errors import CaptureError
from torchstone.runtime.decisions import Decision, Decisions, Turns
from torchstone.torch_internals.training import step_without_hooks
from torchstone.training import choice
from torchstone.training.program import WholeStep
from training_loops import assert_same_training, batches, eager_step, mlp

Tensor = torch.Tensor


@pytest.fixture(autouse=True)
def tuning() -> Iterator[None]:
    with override(tuning=True):
        yield


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The questions that were asked. No candidate is ever chosen."""
    return answer(monkeypatch, None)


def answer(monkeypatch: pytest.MonkeyPatch, chosen: str | None) -> list[dict[str, Any]]:
    """Make ``chosen`` the answer to each question; with None, candidates take turns of one call forever."""
    found: list[dict[str, Any]] = []

    class Each(Turns):
        def took(self, seconds: float) -> None:
            self._place = (self._place + 1) % len(self._candidates)

    def in_turns(_: Decisions, question: dict[str, Any], candidates: list[str], **__: Any) -> Turns:
        turns = Each(candidates, 0.0, 1.0, lambda _: None)
        turns.decision = (
            None if chosen is None else Decision(chosen if chosen in candidates else choice.EAGER)
        )
        found.append({**question, "candidates": candidates})
        return turns

    monkeypatch.setattr(Decisions, "in_turns", in_turns)
    return found


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, maximize=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.01, lr_decay=0.1),
    "nadam": lambda p: torch.optim.NAdam(p, lr=0.01),
}


@pytest.mark.kept("sgd-None", "sgd-eager PyTorch with a fused update")
@pytest.mark.parametrize(
    ("name", "chosen"),
    [
        *((name, None) for name in OPTIMIZERS),
        *(("sgd", one) for one in (choice.PROGRAM, choice.SAVING, choice.EAGER, choice.FUSED)),
    ],
)
def test_training_is_the_same_whoever_makes_the_steps(
    name: str, chosen: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer(monkeypatch, chosen)
    model, expected = mlp(), mlp()
    optimizer, expected_optimizer = (
        OPTIMIZERS[name](model.parameters()),
        OPTIMIZERS[name](expected.parameters()),
    )
    with recorded() as records:
        step = torchstone.compile_step(model, optimizer, F.cross_entropy)
        for inputs, targets in batches(12):
            loss = step(inputs, targets)
            torch.testing.assert_close(loss, eager_step(expected, expected_optimizer, inputs, targets))
            assert not loss.requires_grad
    assert_same_training(model, optimizer, expected, expected_optimizer)
    assert all(p.grad is None for p in model.parameters())
    assert optimizer.param_groups[0].get("fused") is None
    in_eager = sum(record.in_eager for record in records)
    compiled = chosen in (choice.PROGRAM, choice.SAVING, None)
    assert in_eager == (0 if compiled else step.programs - (name != "adagrad"))


class Network(nn.Module):
    """A model with buffers that a step updates, a frozen layer, and a number that code changes."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.frozen = nn.Conv2d(4, 4, 3).requires_grad_(False)
        self.last = nn.Linear(64, 3)
        self.scale = 1.0

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        x = self.frozen(F.relu(self.norm(self.first(x))))
        return {"logits": self.last(x.flatten(1)) * self.scale}


def loss_and_metrics(outputs: dict[str, Tensor], targets: Tensor) -> tuple[Tensor, dict[str, Any]]:
    logits = outputs["logits"]
    return F.cross_entropy(logits, targets), {
        "right": (logits.argmax(1) == targets).sum(),
        "rows": len(targets),
    }


def images(count: int) -> Iterator[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    for _ in range(count):
        yield torch.randn(5, 1, 8, 8, generator=generator), torch.randint(0, 3, (5,), generator=generator)


@pytest.mark.conformance
@pytest.mark.parametrize("options", [{}, {"clip_norm": 0.5}, {"clip_value": 0.01}], ids=str)
def test_buffers_metrics_clipping_and_schedules(options: dict[str, float], asked: list[Any]) -> None:
    model = Network()
    twins = [copy.deepcopy(model), copy.deepcopy(model)]
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.1, momentum=0.9) for one in twins]
    schedules = [torch.optim.lr_scheduler.ExponentialLR(one, 0.9) for one in optimizers]
    step = torchstone.compile_step(twins[0], optimizers[0], loss_and_metrics, **options)
    with override(tuning=False):
        other = torchstone.compile_step(twins[1], optimizers[1], loss_and_metrics, **options)
    for number, (x, y) in enumerate(images(10)):
        for one in twins:
            one.scale = 1.0 + (number > 4)  # a new number needs another program, and another choice
        with override(tuning=True):
            found = step(x, y)
        with override(tuning=False):
            expected = other(x, y)
        torch.testing.assert_close(found, expected)
        for schedule in schedules:
            schedule.step()
    assert_same_training(twins[0], optimizers[0], twins[1], optimizers[1])
    assert [one["what"] for one in asked] == ["training step"] * 2


class Sequences(nn.Module):
    """A model that embeds numbers and reads them with an LSTM or attention."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.reads: nn.Module = (
            nn.LSTM(8, 8, num_layers=2, batch_first=True, bidirectional=True)
            if kind == "lstm"
            else nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)
        )
        self.last = nn.LazyLinear(3)

    def forward(self, x: Tensor) -> Tensor:
        read = self.reads(self.embedding(x))
        return self.last((read[0] if isinstance(read, tuple) else read).mean(1))


@pytest.mark.conformance
@pytest.mark.parametrize("kind", ["lstm", "attention"])
def test_sequences_in_eager_steps(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, choice.EAGER)
    model = Sequences(kind)
    numbers, targets = torch.arange(20).view(4, 5) % 11, torch.arange(4) % 3
    model(numbers)
    twin = copy.deepcopy(model)
    optimizer, other = (torch.optim.SGD(one.parameters(), lr=0.1, momentum=0.9) for one in (model, twin))
    with recorded() as records:
        step = torchstone.compile_step(model, optimizer, F.cross_entropy)
        for _ in range(4):
            loss = step(numbers, targets)
            torch.testing.assert_close(loss, eager_step(twin, other, numbers, targets))
    assert_same_training(model, optimizer, twin, other)
    assert [record.in_eager for record in records] == [0, 1]


def test_autocast_applies_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the loss computes in float32 stays float32, and the rest runs in bfloat16, as in eager PyTorch."""
    answer(monkeypatch, choice.EAGER)
    mixing = torch.randn(3, 3)

    def loss_fn(outputs: Tensor, targets: Tensor) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            return F.cross_entropy(outputs.float() @ mixing, targets)

    model, expected = mlp(), mlp()
    optimizer, expected_optimizer = (torch.optim.SGD(one.parameters(), lr=0.1) for one in (model, expected))
    step = torchstone.compile_step(model, optimizer, loss_fn)
    for inputs, targets in batches(3):
        with torch.autocast("cpu", torch.bfloat16):
            loss, outputs = step(inputs, targets), expected(inputs)
        wanted = loss_fn(outputs, targets)
        wanted.backward()
        expected_optimizer.step()
        expected_optimizer.zero_grad()
        torch.testing.assert_close(loss, wanted.detach())


def test_gradients_get_the_strides_of_their_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, choice.FUSED)
    model, expected = mlp(), mlp()
    optimizer, expected_optimizer = (torch.optim.SGD(one.parameters(), lr=0.1) for one in (model, expected))

    def total(outputs: Tensor, _: Tensor) -> Tensor:  # makes the gradient of the last bias an expanded tensor
        return outputs.sum()

    step = torchstone.compile_step(model, optimizer, total)
    for inputs, targets in batches(3):
        step(inputs, targets)
        total(expected(inputs), targets).backward()
        expected_optimizer.step()
        expected_optimizer.zero_grad()
    assert_same_training(model, optimizer, expected, expected_optimizer)


def test_eager_steps_copy_no_state(monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, choice.EAGER)
    codes: list[str] = []
    real = choice.EagerStep.__init__

    def noting(self: choice.EagerStep, recipe: Any, traced: Any, state: Any) -> None:
        codes.append(traced.module.code)
        real(self, recipe, traced, state)

    monkeypatch.setattr(choice.EagerStep, "__init__", noting)
    model = mlp()
    step = torchstone.compile_step(model, torch.optim.SGD(model.parameters(), lr=0.1), F.cross_entropy)
    for inputs, targets in batches(3):
        step(inputs, targets)
    (code,) = codes
    assert [code.count(f"aten.{name}") for name in ("clone", "detach")] == [1, 0], "the clone is the loss"


def test_eager_steps_that_fail_are_dropped_and_change_nothing(
    asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Network()
    twin = copy.deepcopy(model)
    optimizer, other = (torch.optim.SGD(one.parameters(), lr=0.1) for one in (model, twin))
    step = torchstone.compile_step(model, optimizer, loss_and_metrics)
    taken: list[Turns] = []
    real = Turns.drop
    monkeypatch.setattr(Turns, "drop", lambda self, why: (taken.append(self), real(self, why)))
    made: list[int] = []

    def failing(p: Tensor, grad: Tensor) -> Tensor:
        made.append(1)
        raise MemoryError("no memory for a gradient")

    monkeypatch.setattr(choice, "_laid_out_as", failing)
    for x, y in images(5):
        with override(save_memory=True):  # leaves one way to compile
            found = step(x, y)
        loss, metrics = loss_and_metrics(twin(x), y)
        loss.backward()
        other.step()
        other.zero_grad()
        torch.testing.assert_close(found, (loss.detach(), metrics))
    assert_same_training(model, optimizer, twin, other)
    assert len(made) == 2  # one for each way to update
    failed = dict.fromkeys((choice.EAGER, choice.FUSED), "MemoryError: no memory for a gradient")
    assert taken[-1].decision == Decision(choice.PROGRAM, {}, failed)


class Wide(nn.Module):
    """A model with branches that need not all be in memory at once."""

    def __init__(self) -> None:
        super().__init__()
        self.branches = nn.ModuleList(nn.Linear(8, 512) for _ in range(8))

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([branch(x).tanh().sin().mean() for branch in self.branches])


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("slower", "eagerly", "excess", "chosen"),
    [
        (1.0, 3.0, 0.5, choice.SAVING),
        (1.1, 3.0, 0.5, choice.PROGRAM),
        (1.1, 3.0, 1.04, choice.PROGRAM),
        (1.25, 3.0, 1.06, choice.SAVING),
        (1.25, 3.0, 2.0, choice.SAVING),
        (1.35, 3.0, 2.0, choice.PROGRAM),
        (1.35, 1.25, 1.04, choice.PROGRAM),
        (1.35, 1.25, 1.06, choice.FUSED),
        (None, 1.25, 1.06, choice.FUSED),
    ],
)
def test_a_program_for_little_memory_is_preferred_where_it_is_fast_enough(
    slower: float | None,
    eagerly: float,
    excess: float,
    chosen: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """It may be slower where the program for speed takes more memory than eager PyTorch, as may the latter.

    ``slower`` is None if the program for little memory saves none.
    """
    monkeypatch.setattr(WholeStep, "excess", lambda self: excess)
    if slower is None:
        monkeypatch.setattr(WholeStep, "saves", lambda self: False)
    taken: list[Turns] = []
    real = Turns.took

    def took(self: Turns, seconds: float) -> None:
        taken.append(self)
        times = {choice.EAGER: eagerly, choice.FUSED: eagerly, choice.SAVING: slower}
        real(self, times.get(self.next) or 1.0)

    monkeypatch.setattr(Turns, "took", took)
    model = Wide()
    twin = copy.deepcopy(model)
    optimizer, other = (torch.optim.SGD(one.parameters(), lr=0.1) for one in (model, twin))
    x, target = torch.randn(256, 8), torch.zeros(8)
    with override(cache_dir=tmp_path):
        step = torchstone.compile_step(model, optimizer, F.mse_loss)
        for _ in range(60):
            loss = step(x, target)
            expected = F.mse_loss(twin(x), target)
            expected.backward()
            other.step()
            other.zero_grad()
            torch.testing.assert_close(loss, expected.detach())
    assert_same_training(model, optimizer, twin, other)
    assert taken[-1].next == chosen
    assert bool(taken[-1].decision.dropped) == (slower is None)  # type: ignore[union-attr]


@pytest.mark.kept("None")
@pytest.mark.parametrize("chosen", [None, choice.EAGER])
def test_steps_without_a_graph_for_eager_are_programs(
    chosen: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer(monkeypatch, chosen)
    refused: list[int] = []

    def refuse(*_: Any, **__: Any) -> Any:
        refused.append(1)
        raise CaptureError("the step cannot be traced")

    monkeypatch.setattr("torchstone.training.step.trace_gradients", refuse)
    model, expected = mlp(), mlp()
    optimizer, other = (torch.optim.SGD(one.parameters(), lr=0.1) for one in (model, expected))
    step = torchstone.compile_step(model, optimizer, F.cross_entropy)
    for inputs, targets in batches(5):
        step(inputs, targets)
        eager_step(expected, other, inputs, targets)
    assert_same_training(model, optimizer, expected, other)
    assert len(refused) == 1


def test_a_chosen_eager_step_that_fails_raises_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, choice.EAGER)
    model = Network()
    step = torchstone.compile_step(model, torch.optim.SGD(model.parameters(), lr=0.1), loss_and_metrics)
    ((x, y),) = images(1)
    step(x, y)

    def failing(p: Tensor, grad: Tensor) -> Tensor:
        raise MemoryError("no memory for a gradient")

    monkeypatch.setattr(choice, "_laid_out_as", failing)
    before = copy.deepcopy(model.state_dict())
    with torch.no_grad(), pytest.raises(MemoryError, match="no memory for a gradient"):
        step(x, y)
    with pytest.raises(MemoryError, match="no memory for a gradient"):
        step(x, y)
    assert torch.is_grad_enabled()
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize("enabled", [False, True])
def test_eager_steps_leave_the_grad_mode_as_it_was(enabled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, choice.EAGER)
    model, expected = mlp(), mlp()
    optimizer, other = (torch.optim.SGD(one.parameters(), lr=0.1) for one in (model, expected))
    step = torchstone.compile_step(model, optimizer, F.cross_entropy)
    for inputs, targets in batches(3):
        with torch.set_grad_enabled(enabled):
            step(inputs, targets)
            assert torch.is_grad_enabled() == enabled
        eager_step(expected, other, inputs, targets)
    assert_same_training(model, optimizer, expected, other)


def test_optimizers_run_without_wrappers_that_do_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    (p,) = nn.Linear(2, 1, bias=False).parameters()
    optimizer = torch.optim.SGD([p], lr=0.1)
    found = step_without_hooks(optimizer)
    assert inspect.getsource(found).startswith("    @_use_grad_for_differentiable\n    def step(")
    handle = register_optimizer_step_pre_hook(lambda *_: None)
    assert step_without_hooks(optimizer) is torch.optim.SGD.step, "a hook of all optimizers"
    handle.remove()
    handle = optimizer.register_step_post_hook(lambda *_: None)
    assert step_without_hooks(optimizer) is torch.optim.SGD.step, "a hook of this optimizer"
    handle.remove()
    assert step_without_hooks(torch.optim.SGD([p], lr=0.1, differentiable=True)) is torch.optim.SGD.step
    wrapper = functools.wraps(torch.optim.SGD.step)(lambda *given: None)
    monkeypatch.setattr(torch.optim.SGD, "step", wrapper)
    assert step_without_hooks(optimizer) is wrapper, "a wrapper of the user's"


class Own(torch.optim.SGD):
    """An optimizer of the user's."""


def made(kind: str) -> tuple[nn.Module, torch.optim.Optimizer, dict[str, Any]]:
    model: nn.Module = nn.Sequential(mlp(), nn.Dropout(0.5)) if kind == "dropout" else mlp()
    optimizer: torch.optim.Optimizer = (Own if kind == "own optimizer" else torch.optim.SGD)(
        model.parameters(), lr=0.1
    )
    if kind == "hooks":
        optimizer.register_step_post_hook(lambda *_: None)
    given: dict[str, dict[str, Any]] = {
        "buckets": {"buckets": [64]},
        "non-finite": {"nonfinite": "skip"},
        "zeros": {"set_to_none": False},
        "scaler": {"scaler": torch.amp.GradScaler("cpu")},
        "average": {"average": torch.optim.swa_utils.AveragedModel(model)},
    }
    return model, optimizer, given.get(kind, {})


@pytest.mark.kept("dropout", "own optimizer", "hooks")
@pytest.mark.parametrize(
    "kind",
    ["dropout", "own optimizer", "hooks", "buckets", "non-finite", "zeros", "scaler", "average"],
)
def test_what_programs_alone_do(kind: str, asked: list[Any]) -> None:
    model, optimizer, options = made(kind)
    reduction = "none" if kind == "buckets" else "mean"
    step = torchstone.compile_step(
        model,
        optimizer,
        lambda outputs, targets: F.cross_entropy(outputs, targets, reduction=reduction),
        **options,
    )
    for inputs, targets in batches(3):
        step(inputs, targets)
    assert asked
    assert all(one["candidates"] == [choice.PROGRAM, choice.SAVING] for one in asked)


@pytest.mark.kept("tuning", "fallback")
@pytest.mark.parametrize(
    "settings",
    [{"tuning": False}, {"fallback": False}, {"tuning_budget_s": 0.0}, {"check_indices": True}],
    ids=lambda settings: next(iter(settings)),
)
def test_settings_that_leave_nothing_to_eager(settings: dict[str, Any], asked: list[Any]) -> None:
    model = mlp()
    step = torchstone.compile_step(model, torch.optim.SGD(model.parameters(), lr=0.1), F.cross_entropy)
    with override(**settings):
        for inputs, targets in batches(3):
            step(inputs, targets)
    measured = "fallback" in settings or "check_indices" in settings
    assert [one["candidates"] for one in asked] == [[choice.PROGRAM, choice.SAVING]] * measured


def test_a_step_that_draws_numbers_is_the_same_in_both_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    losses = []
    for chosen in (choice.PROGRAM, choice.SAVING):
        answer(monkeypatch, chosen)
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 64), nn.Dropout(0.5), nn.Linear(64, 3))
        step = torchstone.compile_step(model, torch.optim.SGD(model.parameters(), lr=0.1), F.cross_entropy)
        found = [step(torch.ones(4, 8), torch.arange(4) % 3) for _ in range(4)]
        losses.append(torch.stack(found))
    torch.testing.assert_close(*losses)


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam])
def test_complex_parameters_have_no_fused_update(
    monkeypatch: pytest.MonkeyPatch, optimizer: type[torch.optim.Optimizer]
) -> None:
    """PyTorch's fused kernels refuse complex numbers."""
    answer(monkeypatch, choice.FUSED)
    model = nn.Linear(4, 2, dtype=torch.complex64)
    x, y = (torch.randn(3, n, dtype=torch.complex64) for n in (4, 2))
    step = torchstone.compile_step(
        model, optimizer(model.parameters()), lambda found, wanted: (found - wanted).abs().square().mean()
    )
    losses = [step(x, y).item() for _ in range(3)]
    assert losses[2] < losses[0]
