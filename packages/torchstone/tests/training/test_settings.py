"""Changes that an optimizer's step makes to its groups are there after each step, as in eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import torchstone
from torchstone.errors import CaptureError, TrainingError
from torchstone.training.sharing import Seen
from training_loops import batches, eager_step, mlp

Change = Callable[[dict[str, Any]], Any]


class Changing(torch.optim.Optimizer):
    """Gradient descent with a factor that ``change`` computes from a group, which it may change."""

    def __init__(self, params: Any, change: Change, **settings: Any) -> None:
        super().__init__(params, {"lr": 0.1, **settings})
        self._change = change

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            factor = self._change(group)
            for p in group["params"]:
                p.data.add_(p.grad * -group["lr"] * factor)


def decaying(group: dict[str, Any]) -> Any:
    group["lr"] *= 0.9
    return 1.0


def counting(group: dict[str, Any]) -> Any:
    group["k"] += 1
    assert isinstance(group["k"], int)
    return 1 / group["k"]


def counting_from_nothing(group: dict[str, Any]) -> Any:
    group["k"] = group.get("k", 0) + 1
    return 1 / (group["k"] + 1)


def schedule_free(group: dict[str, Any]) -> Any:
    k = group["k"]
    rate = (k + 1) / group["warmup"] if k < group["warmup"] else 1.0
    group["largest"] = max(rate * group["lr"], group["largest"])
    group["sum"] = group["sum"] + group["largest"] ** 2
    group["k"] = k + 1
    return group["largest"] ** 2 / group["sum"]


def listed(group: dict[str, Any]) -> Any:
    group["betas"][0] *= 0.5
    return group["betas"][0]


def switching(group: dict[str, Any]) -> Any:
    group["mode"] = "b" if group["mode"] == "a" else "a"
    return 1.0 if group["mode"] == "a" else 2.0


def with_tensor(group: dict[str, Any]) -> Any:
    group["scale"] = group["scale"] * 0.5
    return group["scale"]


CASES: dict[str, tuple[Change, dict[str, Any], int]] = {
    "a learning rate": (decaying, {}, 1),
    "a count": (counting, {"k": 0}, 1),
    "a count from nothing": (counting_from_nothing, {}, 2),
    "counts, sums and maxima": (schedule_free, {"k": 0, "warmup": 3, "largest": -1.0, "sum": 0.0}, 2),
    "a part of a list": (listed, {"betas": [0.9, 0.99]}, 1),
    "a word": (switching, {"mode": "a"}, 2),
    "a tensor": (with_tensor, {"scale": torch.tensor(1.0)}, 1),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", CASES)
def test_changed_settings(name: str) -> None:
    change, settings, programs = CASES[name]
    model, expected = mlp(), mlp()
    made = [
        Changing(one.parameters(), change, **{key: copied(value) for key, value in settings.items()})
        for one in (model, expected)
    ]
    step = torchstone.compile_step(model, made[0], F.cross_entropy)
    for inputs, targets in batches(5):
        torch.testing.assert_close(step(inputs, targets), eager_step(expected, made[1], inputs, targets))
        found, same = (one.state_dict()["param_groups"][0] for one in made)
        assert {key: type(value) for key, value in found.items()} == {
            key: type(value) for key, value in same.items()
        }
        assert found == same
    torch.testing.assert_close(model.state_dict(), expected.state_dict())
    assert step.programs == programs


def copied(value: Any) -> Any:
    if isinstance(value, list):
        return list(value)
    return value.clone() if isinstance(value, torch.Tensor) else value


def test_settings_stay_where_an_update_is_left_out() -> None:
    model = mlp()
    optimizer = Changing(model.parameters(), counting, k=0)
    step = torchstone.compile_step(model, optimizer, F.cross_entropy, nonfinite="skip")
    inputs, targets = next(batches(1))
    step(inputs, targets)
    step(inputs / 0, targets)
    assert optimizer.param_groups[0]["k"] == 1


def from_gradients(group: dict[str, Any]) -> Any:
    group["norm"] = group["params"][0].grad.norm()
    return 1.0


def fewer_parameters(group: dict[str, Any]) -> Any:
    group["params"] = group["params"][:1]
    return 1.0


REFUSED: dict[str, tuple[Change, str]] = {
    "a tensor": (from_gradients, r"Changing\.step changes 'norm' of a group to what no program can keep"),
    "parameters": (fewer_parameters, r"Changing\.step changes the parameters of its groups"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_program_can_keep_is_refused(name: str) -> None:
    change, message = REFUSED[name]
    model = mlp()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    optimizer = Changing(model.parameters(), change)
    with pytest.raises(CaptureError, match=message):
        torchstone.compile_step(model, optimizer, F.cross_entropy)(*next(batches(1)))
    torch.testing.assert_close(model.state_dict(), before)
    assert len(optimizer.param_groups[0]["params"]) == 4


def test_a_step_that_changes_its_groups_is_not_exported() -> None:
    model = mlp()
    optimizer = Changing(model.parameters(), counting, k=0)
    with pytest.raises(TrainingError, match=r"Changing\.step changes 'k' of group 0"):
        torchstone.export_step(model, optimizer, F.cross_entropy, next(batches(1)))
    assert optimizer.param_groups[0]["k"] == 0


def _lr(optimizer: torch.optim.Optimizer) -> None:
    optimizer.param_groups[0]["lr"] = float("0.1")


def _moved(optimizer: torch.optim.Optimizer) -> None:
    first, second = (group["params"] for group in optimizer.param_groups)
    second.insert(0, first.pop())


def _renamed(optimizer: torch.optim.Optimizer) -> None:
    kept = next(iter(optimizer.state.values()))
    kept["other"] = kept.pop("momentum_buffer")


def _grad(optimizer: torch.optim.Optimizer) -> None:
    p = optimizer.param_groups[0]["params"][0]
    p.grad = torch.zeros_like(p)


@pytest.mark.parametrize("change", [_lr, _moved, _renamed, _grad])
def test_any_other_object_of_an_optimizer_is_seen(change: Callable[[torch.optim.Optimizer], None]) -> None:
    model = mlp()
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD([{"params": parameters[:2]}, {"params": parameters[2:]}], 0.1, momentum=0.9)
    for p in parameters:
        optimizer.state[p]["momentum_buffer"] = torch.zeros_like(p)
    seen = Seen(optimizer)
    assert seen.fixed
    assert seen.same()
    change(optimizer)
    assert not seen.same()


def test_values_that_can_be_written_in_place_are_not_fixed() -> None:
    optimizer = torch.optim.Adam(mlp().parameters())
    assert Seen(optimizer).fixed
    optimizer.param_groups[0]["betas"] = [0.9, 0.99]
    assert not Seen(optimizer).fixed
