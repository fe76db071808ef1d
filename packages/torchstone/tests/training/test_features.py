"""Features of training loops around a step, each compared with the same in eager PyTorch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.optim import lr_scheduler, swa_utils
from torch.utils.checkpoint import checkpoint

import torchstone
from torchstone.errors import CaptureError, NotFinite, TrainingError
from torchstone.training import step as step_module
from training_loops import assert_same_training, batches, eager_step, mlp

Tensor = torch.Tensor
Module = torch.nn.Module


def pair(
    make: Callable[[], Module], kind: str = "AdamW", **options: float
) -> tuple[Module, Any, Module, Any]:
    """A model with an optimizer, and the same again for eager PyTorch."""
    model = make()
    expected = copy.deepcopy(model)
    optimizer = torch.optim.AdamW if kind == "AdamW" else torch.optim.SGD
    options |= {"momentum": 0.9} if kind == "momentum" else {}
    optimizers = [optimizer(one.parameters(), **{"lr": 0.01, **options}) for one in (model, expected)]
    return model, optimizers[0], expected, optimizers[1]


any_optimizer = pytest.mark.parametrize("kind", ["SGD", pytest.param("AdamW", marks=pytest.mark.conformance)])
"""For tests that do not depend on the optimizer. AdamW has one more program, which makes its state."""
any_state = pytest.mark.parametrize(
    "kind", ["momentum", pytest.param("AdamW", marks=pytest.mark.conformance)]
)
"""For tests that only need an optimizer with state."""


SCHEDULERS: dict[str, Callable[[torch.optim.Optimizer], Any]] = {
    "StepLR": lambda o: lr_scheduler.StepLR(o, 3),
    "MultiStepLR": lambda o: lr_scheduler.MultiStepLR(o, [2, 5]),
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, lambda epoch: 0.9**epoch),
    "MultiplicativeLR": lambda o: lr_scheduler.MultiplicativeLR(o, lambda epoch: 0.9),
    "ConstantLR": lambda o: lr_scheduler.ConstantLR(o, total_iters=3),
    "LinearLR": lambda o: lr_scheduler.LinearLR(o, total_iters=4),
    "ExponentialLR": lambda o: lr_scheduler.ExponentialLR(o, 0.9),
    "PolynomialLR": lambda o: lr_scheduler.PolynomialLR(o, total_iters=10),
    "CosineAnnealingLR": lambda o: lr_scheduler.CosineAnnealingLR(o, 8),
    "CosineAnnealingWarmRestarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 3),
    "CyclicLR": lambda o: lr_scheduler.CyclicLR(o, 0.001, 0.01, step_size_up=3, cycle_momentum=True),
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, 0.02, total_steps=12),
    "ReduceLROnPlateau": lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=0, factor=0.5, threshold=1.0),
    "SequentialLR": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.LinearLR(o), lr_scheduler.ExponentialLR(o, 0.9)], [4]
    ),
    "ChainedScheduler": lambda o: lr_scheduler.ChainedScheduler(
        [lr_scheduler.LinearLR(o), lr_scheduler.ExponentialLR(o, 0.9)]
    ),
    "SWALR": lambda o: swa_utils.SWALR(o, 0.001, anneal_epochs=5),
}


@pytest.mark.filterwarnings("error:Detected call of `lr_scheduler")
def test_schedulers_of_every_kind_never_recompile() -> None:
    """All schedulers use one optimizer in turn, so they share the two programs of the first one."""
    model, optimizer, expected, expected_optimizer = pair(mlp)
    step = torchstone.compile_step(model, optimizer, F.cross_entropy)
    for name, make in SCHEDULERS.items():
        for group in (*optimizer.param_groups, *expected_optimizer.param_groups):
            group.update(lr=0.01, betas=(0.9, 0.999))
            group.pop("initial_lr", None)
        schedulers = [make(one) for one in (optimizer, expected_optimizer)]
        rates = set()
        for inputs, targets in batches(10):
            losses = (step(inputs, targets), eager_step(expected, expected_optimizer, inputs, targets))
            for scheduler, loss in zip(schedulers, losses, strict=True):
                scheduler.step(loss) if name == "ReduceLROnPlateau" else scheduler.step()
            rates.add(optimizer.param_groups[0]["lr"])
        assert len(rates) > 1, name
        assert optimizer.param_groups[0]["lr"] == pytest.approx(expected_optimizer.param_groups[0]["lr"]), (
            name
        )
    assert_same_training(model, optimizer, expected, expected_optimizer, rtol=1e-4, atol=1e-5)
    assert step.programs == 2


@any_state
@pytest.mark.parametrize("set_to_none", [True, pytest.param(False, marks=pytest.mark.conformance)])
def test_accumulation_clipping_and_evaluation(set_to_none: bool, kind: str) -> None:
    model, optimizer, expected, expected_optimizer = pair(mlp, kind)
    step = torchstone.compile_step(
        model,
        optimizer,
        lambda outputs, targets: F.cross_entropy(outputs, targets) / 3,
        clip_norm=0.05,
        clip_value=0.02,
        set_to_none=set_to_none,
    )
    programs = []
    for number, (inputs, targets) in enumerate(batches(12)):
        last = number % 3 == 2
        (step if last else step.accumulate)(inputs, targets)
        (F.cross_entropy(expected(inputs), targets) / 3).backward()
        if last:
            torch.nn.utils.clip_grad_value_(expected.parameters(), step.clip_value or 0)
            torch.nn.utils.clip_grad_norm_(expected.parameters(), step.clip_norm or 0)
            expected_optimizer.step()
            expected_optimizer.zero_grad(set_to_none=set_to_none)
            step.clip_norm = (step.clip_norm or 0) * 0.9
            with torch.no_grad():
                torch.testing.assert_close(model(inputs), expected(inputs))
            programs.append(step.programs)
        for one, other in zip(model.parameters(), expected.parameters(), strict=True):
            torch.testing.assert_close(one.grad, other.grad)
    assert_same_training(model, optimizer, expected, expected_optimizer)
    assert programs[1:] == [programs[1]] * 3
    assert programs[-1] <= 6  # state and gradients may be there or not, in two kinds of steps


class Assorted(Module):
    """Tied and frozen weights, batch norm, an unused parameter, a buffer that is assigned anew."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = torch.nn.Embedding(11, 6)
        self.norm = torch.nn.BatchNorm1d(6)
        self.frozen = torch.nn.Linear(6, 6).requires_grad_(False)
        self.unused = torch.nn.Parameter(torch.ones(2))
        self.out = torch.nn.Linear(6, 11, bias=False)
        self.out.weight = self.embed.weight
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, tokens: Tensor, scale: Tensor) -> dict[str, Tensor]:
        self.seen = self.seen + tokens.numel()
        hidden = self.frozen(self.norm(self.embed(tokens) * scale)).relu()
        return {"logits": self.out(hidden)}


def test_tied_frozen_and_unused_parameters_buffers_groups_and_trees() -> None:
    model, expected = Assorted(), Assorted()

    def make(model: Module) -> torch.optim.Optimizer:
        tensors = dict(model.named_parameters())
        return torch.optim.SGD(
            [
                {"params": [tensors["embed.weight"]], "lr": 0.1, "momentum": 0.5},
                {"params": [p for name, p in tensors.items() if name != "embed.weight"], "weight_decay": 0.1},
            ],
            lr=0.01,
        )

    def loss_fn(outputs: dict[str, Tensor], targets: tuple[Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        loss = F.cross_entropy(outputs["logits"], targets[0])
        return loss, {"double": 2 * loss, "logits": outputs["logits"]}

    optimizer, expected_optimizer = make(model), make(expected)
    step = torchstone.compile_step(model, optimizer, loss_fn)
    for number in range(6):
        torch.manual_seed(number)
        inputs = {"tokens": torch.randint(0, 11, (16,)), "scale": torch.rand(6)}
        targets = (torch.randint(0, 11, (16,)),)
        found = step(inputs, targets)
        expected_optimizer.zero_grad()
        wanted = loss_fn(expected(**inputs), targets)
        wanted[0].backward()
        expected_optimizer.step()
        torch.testing.assert_close(found, wanted)
        if number == 3:  # modules that change mode, and parameters that thaw
            for one in (model, expected):
                one.norm.eval()
                one.frozen.requires_grad_(True)
    assert_same_training(model, optimizer, expected, expected_optimizer)
    assert model.out.weight is model.embed.weight
    assert model.seen == 96


@any_optimizer
def test_last_batch_of_another_size(kind: str) -> None:
    model, optimizer, expected, expected_optimizer = pair(mlp, kind)
    step = torchstone.compile_step(model, optimizer, F.cross_entropy)
    for _ in range(3):
        for size in (32, 32, 7):
            inputs, targets = next(batches(1, size))
            step(inputs, targets)
            eager_step(expected, expected_optimizer, inputs, targets)
    assert_same_training(model, optimizer, expected, expected_optimizer)
    assert step.programs == 2 + (kind == "AdamW")


def convolutions() -> Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, bias=False),
        torch.nn.BatchNorm2d(8),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(288, 3),
    )


@any_state
def test_channels_last_keeps_its_strides(kind: str) -> None:
    model, optimizer, expected, expected_optimizer = pair(
        lambda: convolutions().to(memory_format=torch.channels_last), kind
    )
    step = torchstone.compile_step(model, optimizer, F.cross_entropy)
    strides = [p.stride() for p in model.parameters()]
    for number in range(4):
        torch.manual_seed(number)
        inputs = torch.randn(5, 3, 8, 8).to(memory_format=torch.channels_last)
        targets = torch.randint(0, 3, (5,))
        step(inputs, targets)
        eager_step(expected, expected_optimizer, inputs, targets)
    assert [p.stride() for p in model.parameters()] == strides
    for p, q in zip(model.parameters(), expected.parameters(), strict=True):
        for name, value in optimizer.state[p].items():
            assert value.stride() == expected_optimizer.state[q][name].stride()
    assert_same_training(model, optimizer, expected, expected_optimizer)


class Dropping(Module):
    def __init__(self, checkpointed: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = torch.nn.Linear(8, 64), torch.nn.Linear(64, 3)
        self.checkpointed = checkpointed

    def block(self, x: Tensor) -> Tensor:
        return F.dropout(self.first(x).tanh(), 0.5)

    def forward(self, x: Tensor) -> Tensor:
        hidden = checkpoint(self.block, x, use_reentrant=False) if self.checkpointed else self.block(x)
        return self.second(hidden)


def test_dropout_is_repeated_by_the_seed_and_by_activation_checkpointing() -> None:
    """The gradients use the mask of the forward pass, also if checkpointing computes that pass again."""
    trained = []
    for checkpointed in (False, True, True):
        model = Dropping(checkpointed)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        step = torchstone.compile_step(model, optimizer, F.cross_entropy)
        torch.manual_seed(3)
        losses = torch.stack([step(*batch) for batch in batches(4)])
        trained.append((losses, copy.deepcopy(model.state_dict())))
    assert len(set(trained[0][0].tolist())) == 4
    torch.testing.assert_close(trained[1], trained[2])
    torch.testing.assert_close(trained[0], trained[1])


def test_gradient_of_a_checkpointed_dropout_uses_one_mask() -> None:
    """``dropout(x * w).sum()``: the gradient of w is zero where the output is."""
    model = torch.nn.Linear(1, 1)
    weight = torch.nn.Parameter(torch.ones(1000))
    model.register_parameter("scale", weight)

    def loss_fn(model: Module, x: Tensor) -> tuple[Tensor, Tensor]:
        out = checkpoint(lambda scale: F.dropout(x * scale * scale, 0.5), weight, use_reentrant=False)
        return out.sum(), out

    step = torchstone.compile_step(model, torch.optim.SGD([weight], lr=1.0), loss_fn)
    _, out = step(torch.ones(1000))
    assert 300 < (out == 0).sum() < 700
    torch.testing.assert_close(weight.detach(), 1 - 2 * out)


@any_state
def test_autocast(kind: str) -> None:
    model, optimizer, expected, expected_optimizer = pair(mlp, kind)
    step = torchstone.compile_step(model, optimizer, F.cross_entropy)
    with torch.autocast("cpu", torch.bfloat16):
        inputs, targets = next(batches(1))
        loss = step(inputs, targets)
        expected_loss = F.cross_entropy(expected(inputs), targets)
    expected_loss.backward()
    expected_optimizer.step()
    torch.testing.assert_close(loss, expected_loss.detach(), rtol=2**-7, atol=0.0)
    assert all(p.dtype == torch.float32 for p in model.parameters())
    step(inputs, targets)
    assert step.programs == 2  # one program with autocast, one without


@any_state
def test_gradient_scaler_leaves_steps_out_and_grows(kind: str) -> None:
    model, optimizer, expected, expected_optimizer = pair(mlp, kind)
    scalers = [torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=2) for _ in range(2)]
    step = torchstone.compile_step(model, optimizer, F.cross_entropy, scaler=scalers[0], clip_norm=0.1)
    scales = []
    for number, (inputs, targets) in enumerate(batches(8)):
        if number in (0, 4):
            inputs[0, 0] = float("inf")
        loss = step(inputs, targets)
        expected_optimizer.zero_grad()
        expected_loss = F.cross_entropy(expected(inputs), targets)
        scalers[1].scale(expected_loss).backward()
        scalers[1].unscale_(expected_optimizer)
        torch.nn.utils.clip_grad_norm_(expected.parameters(), 0.1)
        scalers[1].step(expected_optimizer)
        scalers[1].update()
        torch.testing.assert_close(loss, expected_loss.detach(), equal_nan=True)
        assert scalers[0].state_dict() == scalers[1].state_dict()
        scales.append(scalers[0].get_scale())
        if number == 0:
            assert not any(optimizer.state.values())
    assert scales[0] < 2**10  # the first batch reduced it
    assert scales[1] < scales[2]  # two good batches increased it
    assert_same_training(model, optimizer, expected, expected_optimizer)


@any_optimizer
@pytest.mark.parametrize("multi", [pytest.param(False, marks=pytest.mark.conformance), True])
def test_exponential_moving_average(multi: bool, kind: str) -> None:
    model, optimizer, expected, expected_optimizer = pair(mlp, kind)
    averaging: Any = (
        {"multi_avg_fn": swa_utils.get_ema_multi_avg_fn(0.9)}
        if multi
        else {"avg_fn": swa_utils.get_ema_avg_fn(0.9)}
    )
    average, expected_average = (swa_utils.AveragedModel(one, **averaging) for one in (model, expected))
    step = torchstone.compile_step(model, optimizer, F.cross_entropy, average=average)
    for inputs, targets in batches(6):
        step(inputs, targets)
        eager_step(expected, expected_optimizer, inputs, targets)
        expected_average.update_parameters(expected)
    torch.testing.assert_close(average.state_dict(), expected_average.state_dict())
    inputs, _ = next(batches(1))
    torch.testing.assert_close(average(inputs), expected_average(inputs))


@pytest.mark.kept("raise-momentum")
@pytest.mark.parametrize("kind", ["momentum", "AdamW"])
@pytest.mark.parametrize("nonfinite", ["update", "skip", "raise"])
def test_run_that_becomes_nan(nonfinite: Any, kind: str) -> None:
    model, optimizer, _, _ = pair(convolutions, kind)
    step = torchstone.compile_step(model, optimizer, F.cross_entropy, nonfinite=nonfinite)
    inputs, targets = torch.randn(5, 3, 8, 8), torch.randint(0, 3, (5,))
    step(inputs, targets)
    before = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    inputs[0] = float("nan")
    if nonfinite == "raise":
        with pytest.raises(
            NotFinite,
            match=r"infinite or NaN: the loss; the gradients of 0\.weight, 1\.weight, 1\.bias and 2 more",
        ):
            step(inputs, targets)
    else:
        assert step(inputs, targets).isnan()
    if nonfinite == "update":
        assert all(p.isnan().all() for p in model.parameters())
    else:
        torch.testing.assert_close((model.state_dict(), optimizer.state_dict()), before, rtol=0, atol=0)


def clip_in_a_hook(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    torch.nn.utils.clip_grad_norm_(parameters, 0.5)


@any_optimizer
def test_hooks_of_parameters_modules_and_optimizers(kind: str) -> None:
    model, optimizer, expected, expected_optimizer = pair(mlp, kind)
    for one, its_optimizer in ((model, optimizer), (expected, expected_optimizer)):
        one[0].weight.register_hook(lambda grad: grad * 2)
        one[0].register_forward_hook(lambda module, args, output: output + 1)
        one[2].register_full_backward_hook(lambda module, inputs, outputs: (inputs[0] * 3,))
        its_optimizer.register_step_pre_hook(clip_in_a_hook)
    step = torchstone.compile_step(model, optimizer, F.cross_entropy)
    for inputs, targets in batches(4):
        step(inputs, targets)
        eager_step(expected, expected_optimizer, inputs, targets)
    assert_same_training(model, optimizer, expected, expected_optimizer)
    model[0].bias.register_post_accumulate_grad_hook(lambda p: None)
    with pytest.raises(
        TrainingError, match=r"0\.bias has a hook that runs after its gradient is accumulated"
    ):
        torchstone.compile_step(model, optimizer, F.cross_entropy)(inputs, targets)


@any_optimizer
def test_gradient_penalty_is_a_double_backward(kind: str) -> None:
    model, optimizer, expected, expected_optimizer = pair(mlp, kind)

    def loss_fn(model: Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        x = batch[0].detach().requires_grad_()
        loss = F.cross_entropy(model(x), batch[1])
        (slope,) = torch.autograd.grad(loss, x, create_graph=True)
        return loss + slope.square().sum()

    step = torchstone.compile_step(model, optimizer, loss_fn)
    for batch in batches(4):
        step(batch)
        expected_optimizer.zero_grad()
        loss_fn(expected, batch).backward()
        expected_optimizer.step()
    assert_same_training(model, optimizer, expected, expected_optimizer)


@any_optimizer
def test_gradient_penalty_of_a_batch_that_requires_a_gradient(kind: str) -> None:
    model, optimizer, expected, expected_optimizer = pair(mlp, kind)

    def loss_fn(model: Module, x: Tensor) -> Tensor:
        loss = model(x).square().sum()
        if not x.requires_grad:
            return loss
        return loss + torch.autograd.grad(loss, x, create_graph=True)[0].square().sum()

    step = torchstone.compile_step(model, optimizer, loss_fn)
    for number, (x, _) in enumerate(batches(2)):
        x.requires_grad_(number % 2 == 1)
        step(x)
        expected_optimizer.zero_grad()
        loss_fn(expected, x).backward()
        expected_optimizer.step()
    assert_same_training(model, optimizer, expected, expected_optimizer)


@any_optimizer
def test_losses_with_weights_that_change_need_one_program(kind: str) -> None:
    model, optimizer, expected, expected_optimizer = pair(mlp, kind, weight_decay=0.0)

    def loss_fn(model: Module, batch: tuple[Tensor, Tensor, float]) -> Tensor:
        return F.cross_entropy(model(batch[0]), batch[1]) * batch[2]

    step = torchstone.compile_step(model, optimizer, loss_fn)
    for number, batch in enumerate(batches(5)):
        step((*batch, 0.5**number))
        expected_optimizer.zero_grad()
        loss_fn(expected, (*batch, 0.5**number)).backward()
        expected_optimizer.step()
    assert_same_training(model, optimizer, expected, expected_optimizer)
    assert step.programs == 1 + (kind == "AdamW")


@any_optimizer
def test_lstm_is_part_of_the_step(kind: str) -> None:
    class Reader(Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.cell, self.out = torch.nn.LSTM(8, 6, batch_first=True), torch.nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.out(self.cell(x.unflatten(1, (2, 4)).repeat(1, 1, 2))[0][:, -1])

    model, optimizer, expected, expected_optimizer = pair(Reader, kind)
    step = torchstone.compile_step(model, optimizer, F.cross_entropy)
    for inputs, targets in batches(4):
        step(inputs, targets)
        eager_step(expected, expected_optimizer, inputs, targets)
    assert_same_training(model, optimizer, expected, expected_optimizer)


def test_what_cannot_be_one_program_is_refused_and_nothing_is_lost() -> None:
    model, optimizer, _, _ = pair(mlp)
    before = copy.deepcopy(model.state_dict())

    def branches(model: Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        loss = F.cross_entropy(model(batch[0]), batch[1])
        return loss if loss > 1 else loss * 2

    def keeps(model: Any, batch: tuple[Tensor, Tensor]) -> Tensor:
        model.last = model(batch[0])
        return F.cross_entropy(model.last, batch[1])

    batch = next(batches(1))
    with pytest.raises(
        CaptureError, match=r"looks at the value of a tensor .*\n  next: compute with tensors"
    ):
        torchstone.compile_step(model, optimizer, branches)(batch)
    with pytest.raises(CaptureError, match="Sequential keeps a tensor of the step in its attribute 'last'"):
        torchstone.compile_step(model, optimizer, keeps)(batch)
    assert not hasattr(model, "last")
    tied = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
    tied[1].weight = torch.nn.Parameter(tied[0].weight.data)
    with pytest.raises(
        TrainingError, match=r"0\.weight and 1\.weight are different parameters over the same"
    ):
        torchstone.compile_step(tied, torch.optim.SGD(tied.parameters()), F.mse_loss)(batch)
    with pytest.raises(TrainingError, match="nonfinite='ignore' is unknown\n  next: use one of update, skip"):
        torchstone.compile_step(model, optimizer, F.mse_loss, nonfinite="ignore")  # type: ignore[arg-type]
    torch.testing.assert_close(model.state_dict(), before)


class Overlapping(torch.nn.Module):
    """Has two buffers in the same memory. ``name`` is the one that the forward pass writes, if any."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.register_buffer("whole", torch.zeros(4))
        self.register_buffer("part", self.whole[:2])
        self.name = name

    def forward(self, x: Tensor) -> Tensor:
        if self.name:
            getattr(self, self.name).add_(1)
        return self.linear(x) + self.whole + self.part.sum()


@pytest.mark.parametrize("name", ["whole", "part"])
def test_written_state_that_shares_memory_is_refused(name: str) -> None:
    model = Overlapping(name)
    optimizer = torch.optim.SGD(model.parameters())
    x = torch.ones(2, 4)
    with pytest.raises(
        TrainingError, match=rf"writes {name}, and whole and part share memory\n  next: register"
    ):
        torchstone.compile_step(model, optimizer, F.mse_loss)(x, x)
    assert model.whole.tolist() == [0, 0, 0, 0]


def test_a_buffer_over_a_weight_is_refused() -> None:
    model = torch.nn.Linear(4, 4)
    model.register_buffer("same", model.weight.detach())
    x = torch.ones(2, 4)
    with pytest.raises(TrainingError, match="writes weight, and weight and same share memory"):
        torchstone.compile_step(model, torch.optim.SGD(model.parameters()), F.mse_loss)(x, x)


def test_state_that_shares_memory_and_is_only_read_is_taken() -> None:
    model = Overlapping("")
    x = torch.ones(2, 4)
    expected = F.mse_loss(model(x), x)
    step = torchstone.compile_step(model, torch.optim.SGD(model.parameters()), F.mse_loss)
    torch.testing.assert_close(step(x, x), expected.detach())


def test_the_gradient_of_max_pooling_needs_no_scatter(monkeypatch: pytest.MonkeyPatch) -> None:
    """The places of the maxima are known when the step is traced, and no longer afterwards."""
    graphs: list[Any] = []
    traced = step_module.trace
    monkeypatch.setattr(
        step_module, "trace", lambda *args, **options: graphs.append(traced(*args, **options)) or graphs[-1]
    )
    model = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.MaxPool2d(2))
    step = torchstone.compile_step(
        model, torch.optim.SGD(model.parameters(), lr=0.1), lambda m, x: m(x).sum()
    )
    step(torch.randn(2, 1, 8, 8))
    names = {str(node.target) for node in graphs[0].module.graph.nodes}
    assert "aten.max_pool2d_with_indices_backward.default" in names
    assert "aten.adaptive_max_pool2d_backward.default" not in names
