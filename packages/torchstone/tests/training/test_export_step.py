"""``export_step``: whole training steps as artifacts, which run without PyTorch."""

from __future__ import annotations

import copy
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import torchstone
from torchstone.errors import InputMismatch, TorchstoneError, TrainingError
from training_loops import batches, eager_step, mlp


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=0.01)


def assert_same_weights(program: torchstone.Program, expected: nn.Module) -> None:
    found = program.state()
    for name, value in expected.state_dict().items():
        torch.testing.assert_close(torch.from_numpy(found[name].copy()), value)


def test_the_model_and_the_optimizer_stay_as_they_are() -> None:
    model = mlp()
    optimizer = adam(model)
    before, gradients = copy.deepcopy(model.state_dict()), {}
    for name, p in model.named_parameters():
        p.grad = gradients[name] = torch.ones_like(p)
    batch = next(batches(1))
    program = torchstone.export_step(model, optimizer, F.cross_entropy, batch)
    program(*batch)
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)
    assert not optimizer.state
    assert all(p.grad is gradients[name] for name, p in model.named_parameters())
    for p in model.parameters():
        p.grad = None
    eager_step(model, optimizer, *batch)
    assert_same_weights(program, model)


def test_one_tensor_in_two_places_of_the_batch_is_two_inputs() -> None:
    model = nn.Linear(4, 4)
    example = torch.randn(3, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    program = torchstone.export_step(model, optimizer, F.mse_loss, (example, example))
    inputs, targets = torch.randn(3, 4), torch.randn(3, 4)
    torch.testing.assert_close(program(inputs, targets), F.mse_loss(model(inputs), targets).detach())


def test_an_export_goes_on_where_training_is() -> None:
    """The first step of momentum with dampening differs from the others, so no program exists before it."""
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, dampening=0.5)
    first, *rest = batches(4)
    with pytest.raises(TrainingError, match="the first step of SGD differs from later ones"):
        torchstone.export_step(model, optimizer, F.cross_entropy, first)
    assert not optimizer.state
    eager_step(model, optimizer, *first)
    program = torchstone.export_step(model, optimizer, F.cross_entropy, first)
    for inputs, targets in rest:
        torch.testing.assert_close(program(inputs, targets), eager_step(model, optimizer, inputs, targets))
    assert_same_weights(program, model)


def test_a_branch_that_has_been_settled() -> None:
    """RAdam's first five steps have no adaptive part; all later steps are alike."""
    model = mlp()
    optimizer = torch.optim.RAdam(model.parameters(), lr=0.01)
    data = list(batches(12))
    for place, (inputs, targets) in enumerate(data[:6]):
        if place == 4:
            with pytest.raises(TrainingError, match=r"RAdam branches on optimizer\.state"):
                torchstone.export_step(model, optimizer, F.cross_entropy, data[0])
        eager_step(model, optimizer, inputs, targets)
    program = torchstone.export_step(model, optimizer, F.cross_entropy, data[0])
    for inputs, targets in data[6:]:
        torch.testing.assert_close(program(inputs, targets), eager_step(model, optimizer, inputs, targets))
    assert_same_weights(program, model)


WITHOUT_TORCH = """
import sys

class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ImportError("torch is blocked")

sys.meta_path.insert(0, NoTorch())

import numpy
import torchstone

step = torchstone.load(sys.argv[1])
data = numpy.load(sys.argv[2])
losses = [step(data["inputs"][i], data["targets"][i])["loss"] for i in range(len(data["inputs"]))]
step.save(sys.argv[3])
print("torch" in sys.modules, " ".join(f"{float(loss):.6f}" for loss in losses))
"""


def test_an_artifact_trains_without_torch(tmp_path: Path) -> None:
    """Batch norm, a loss among metrics, clipping, and a dict of state that is saved and read again."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.GELU(), nn.Linear(16, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def loss_fn(logits: torch.Tensor, targets: torch.Tensor) -> dict[str, Any]:
        return {"loss": F.cross_entropy(logits, targets), "right": (logits.argmax(1) == targets).sum()}

    data = list(batches(10))
    program = torchstone.export_step(model, optimizer, loss_fn, data[0], clip_norm=0.5)
    file, arrays, trained = (
        program.save(tmp_path / "step.stone"),
        tmp_path / "data.npz",
        tmp_path / "trained.stone",
    )
    numpy.savez(arrays, inputs=[one.numpy() for one, _ in data], targets=[one.numpy() for _, one in data])
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, str(file), str(arrays), str(trained)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    torch_was_there, *losses = done.stdout.split()
    assert torch_was_there == "False"
    for (inputs, targets), found in zip(data, losses, strict=True):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        assert float(found) == pytest.approx(loss.item(), abs=2e-6)
    assert_same_weights(torchstone.load(trained), model)


def test_a_scaler_leaves_updates_out_and_adapts() -> None:
    model = mlp()
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=2)
    program = torchstone.export_step(model, adam(model), F.cross_entropy, next(batches(1)), scaler=scaler)
    (inputs, targets), *_ = batches(1)
    before = program.state()["0.weight"].copy()
    program(torch.full_like(inputs, float("inf")), targets)
    state = program.state()
    numpy.testing.assert_array_equal(state["0.weight"], before)
    assert (state["scaler.scale"], state["optimizer.state.0.weight.step"]) == (2.0, 0.0)
    for _ in range(2):
        program(inputs, targets)
    state = program.state()
    assert (state["scaler.scale"], state["optimizer.state.0.weight.step"]) == (4.0, 2.0)
    assert (state["0.weight"] != before).any()


def test_an_average_of_the_weights() -> None:
    model, expected = mlp(), mlp()
    average, expected_average = (torch.optim.swa_utils.AveragedModel(one) for one in (model, expected))
    optimizer, expected_optimizer = adam(model), adam(expected)
    first, *rest = batches(4)
    with pytest.raises(TrainingError, match=r"branches on average\.n_averaged"):
        torchstone.export_step(model, optimizer, F.cross_entropy, first, average=average)
    for one, mean in ((model, average), (expected, expected_average)):
        mean.update_parameters(one)
    program = torchstone.export_step(model, optimizer, F.cross_entropy, first, average=average)
    for inputs, targets in rest:
        program(inputs, targets)
        eager_step(expected, expected_optimizer, inputs, targets)
        expected_average.update_parameters(expected)
    found = torch.from_numpy(program.state()["average.module.0.weight"].copy())
    torch.testing.assert_close(found, expected_average.module[0].weight.detach())  # type: ignore[index]


def test_dropout_draws_from_the_generator_of_the_caller() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 64), nn.Dropout(0.5), nn.Linear(64, 3))
    batch = next(batches(1))
    program = torchstone.export_step(
        model, torch.optim.SGD(model.parameters(), lr=0.0), F.cross_entropy, batch
    )
    torch.manual_seed(1)
    first, second = program(*batch), program(*batch)
    torch.manual_seed(1)
    assert first != second
    assert program(*batch) == first


def test_the_names_of_the_state() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.frozen = nn.Linear(8, 4), nn.Linear(4, 3)
            self.frozen.requires_grad_(False)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.frozen(self.a(ids))
            return out

    model = Net()
    groups = [{"params": [model.a.weight], "lr": 0.5}, {"params": [model.a.bias], "weight_decay": 0.1}]
    optimizer = torch.optim.SGD(groups, lr=0.1, momentum=0.9)

    def loss_fn(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        return F.cross_entropy(model(batch["x"]), batch["labels"])

    (inputs, targets), *_ = batches(1)
    program = torchstone.export_step(model, optimizer, loss_fn, ({"x": inputs, "labels": targets},))
    assert sorted(program.state()) == [
        "a.bias",
        "a.weight",
        "frozen.bias",
        "frozen.weight",
        "optimizer.param_groups.0.lr",
        "optimizer.param_groups.1.lr",
        "optimizer.state.a.bias.momentum_buffer",
        "optimizer.state.a.weight.momentum_buffer",
    ]
    assert [one.name for one in program.signature.inputs if one.kind == "input"] == [
        "batch_x",
        "batch_labels",
    ]
    assert "optimizer.state.a.weight.momentum_buffer" in program.mlir_text()
    program({"x": inputs, "labels": targets})


def test_the_module_says_which_results_are_new_state() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    batch = next(batches(1))
    for program in (
        torchstone.export_step(model, adam(model), F.cross_entropy, batch),
        torchstone.export(model, batch[:1]),
    ):
        signature = program.signature
        main = program.mlir_text().partition("@main(")[2].partition("->")[0]
        found = {}
        for place, argument in enumerate(re.split(r"%arg\d+: ", main)[1:]):
            result = re.search(r"tf\.aliasing_output = (\d+) : i32", argument)
            if result:
                found[signature.inputs[place].target] = signature.outputs[int(result[1])].target
        replaced = {one.target: one.target for one in signature.outputs if one.kind == "buffer_mutation"}
        assert len(replaced) >= 3
        assert found == replaced


def test_load_state_takes_all_or_nothing() -> None:
    model = mlp()
    program = torchstone.export_step(model, adam(model), F.cross_entropy, next(batches(1)))
    batch = next(batches(1))
    program(*batch)
    before = program.state()
    new = {"0.bias": torch.ones(16), "0.weight": torch.ones(8, 16)}
    with pytest.raises(
        InputMismatch, match=r"0\.weight is float32\[16, 8\] in the program, and float32\[8, 16\] was"
    ):
        program.load_state(new)
    with pytest.raises(
        InputMismatch, match=r"(?s)no parameter or buffer '0\.weigth'.*did you mean 0\.weight"
    ):
        program.load_state({"0.bias": torch.ones(16), "0.weigth": torch.ones(16, 8)})
    with pytest.raises(
        InputMismatch, match=r"0\.bias is float32\[16\] in the program, and float64\[16\] was given"
    ):
        program.load_state({"0.bias": numpy.ones(16)})
    for name, value in program.state().items():
        numpy.testing.assert_array_equal(value, before[name])
    given = numpy.ones(16, numpy.float32)
    program.load_state({"0.bias": given})
    given[:] = 2
    assert (program.state()["0.bias"] == 1).all()
    program(*batch)
    assert (program.state()["0.bias"] != before["0.bias"]).all()
    assert program.state()["optimizer.state.0.weight.step"] == 2


class Unfit(torch.optim.Optimizer):
    """Counts its steps with a Python number."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 0.1})

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                state.setdefault("count", 0)
                state["count"] += 1
                p.data.add_(p.grad, alpha=-group["lr"] / state["count"])


def test_counters_in_python_are_state() -> None:
    model, expected = mlp(), mlp()
    optimizer, expected_optimizer = Unfit(model.parameters()), Unfit(expected.parameters())
    program = torchstone.export_step(model, optimizer, F.cross_entropy, next(batches(1)))
    for inputs, targets in batches(4):
        program(inputs, targets)
        eager_step(expected, expected_optimizer, inputs, targets)
    assert_same_weights(program, expected)
    assert program.state()["optimizer.state.0.weight.count"] == 4


@pytest.mark.parametrize(
    ("make", "options", "batch", "message"),
    [
        (adam, {}, (1, 2, 3), "the batch has 3 parts"),
        (adam, {}, {"x": 1}, "the batch is a dict, not a tuple"),
        (adam, {"clip_norm": "1.0"}, None, r"clip_norm='1\.0' is not a number"),
        (adam, {}, (torch.ones(4, 8), 0.5), "a Python float in it"),
        (adam, {"nonfinite": "raise"}, None, "a program cannot raise for values"),
        (adam, {"shardings": {"0.weight": "data"}}, None, "shardings= needs a mesh"),
        (
            adam,
            {"mesh": torchstone.Mesh({"data": 2}), "shardings": {"optimizer.*.exp_awg": "data"}},
            None,
            r"names 'optimizer\.\*\.exp_awg', and there is no such",
        ),
        (lambda m: Unfit(m.parameters()), {"nonfinite": "skip"}, None, "counts steps in Python numbers"),
        (lambda m: torch.optim.LBFGS(m.parameters()), {}, None, "takes a closure"),
        (lambda m: torch.optim.SGD(nn.Linear(2, 2).parameters()), {}, None, "that the model does not have"),
    ],
)
def test_refusals(make: Any, options: dict[str, Any], batch: Any, message: str) -> None:
    model = mlp()
    with pytest.raises(TorchstoneError, match=message):
        torchstone.export_step(model, make(model), F.cross_entropy, batch or next(batches(1)), **options)
