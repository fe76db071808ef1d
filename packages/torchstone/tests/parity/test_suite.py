"""The parity suite: what it compares, what it notices, and its reports."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from optest.core.comparator import compare
from torchstone.errors import ModelError
from torchstone.parity import steps, suite, verify
from torchstone.parity.model import Model
from torchstone.parity.subject import Subject
from torchstone.parity.suite import SUITE, SuiteReport, load, names_of, run_suite, source_of
from torchstone.parity.suite_pages import markdown, page, verdict
from torchstone.parity.verification import Check

Torchstone = Callable[..., Any]

MODELS = """\
import torch

class Half(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.inner(x)

@torch.library.custom_op("torchstone_suite_tests::mystery", mutates_args=())
def mystery(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(x.numpy().copy())  # cannot be traced through

mystery.register_fake(torch.empty_like)

class Unsupported(torch.nn.Module):
    def forward(self, x):
        return torch.ops.torchstone_suite_tests.mystery(x)

def half():
    torch.manual_seed(0)
    return Half(), (torch.randn(3, 4),)

def unsupported():
    return Unsupported(), (torch.randn(3),)

def fails():
    raise ValueError("the checkpoint is gone")
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("suite") / "suite_models.py"
    path.write_text(MODELS)
    return path


@pytest.fixture(scope="module")
def mlp() -> SuiteReport:
    return run_suite(["mlp"], steps=2)


def test_the_quick_part_passes_in_every_stage(mlp: SuiteReport) -> None:
    assert mlp.passed, markdown(mlp)
    stages = {line["stage"]: line for line in mlp.to_dict()["models"][0]["stages"]}
    assert list(stages) == ["artifact", "compiled", "gradients", "training", "step"]
    # 6 parameters with 4 tensors each (gradient, value, update and momentum), and 2 losses.
    assert stages["training"]["tensors"] == stages["step"]["tensors"] == 4 * 6 + 2
    assert mlp.to_dict()["unsupported"] == []


def test_adamw_has_its_own_state() -> None:
    model = torch.nn.Linear(3, 2)
    found = steps.eager_values(Subject(model, (torch.randn(4, 3),), {}), "adamw", 2)
    assert {name for name in found if "optimizer" in name} == {
        f"optimizer's {key} of {name}"
        for key in ("step", "exp_avg", "exp_avg_sq")
        for name in ("weight", "bias")
    }
    assert float(found["loss 0"]) > float(found["loss 1"])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("stage", ["training", "step"])
@pytest.mark.parametrize(
    "what",
    [
        "loss 1",
        "gradient of inner.weight",
        "parameter inner.weight",
        "update of inner.bias",
        "optimizer's momentum_buffer of inner.bias",
    ],
)
def test_a_wrong_value_is_a_hot_spot_with_its_line(
    monkeypatch: pytest.MonkeyPatch, file: Path, stage: str, what: str
) -> None:
    name = {"training": "compiled_values", "step": "step_values"}[stage]
    right = getattr(steps, name)

    def wrong(*arguments: Any) -> dict[str, torch.Tensor]:
        found = right(*arguments)
        return {**found, what: found[what] * 1.001}

    monkeypatch.setattr(verify, name, wrong)
    report = run_suite([f"{file}:half"], steps=2)
    assert not report.passed
    (spot,) = report.hot_spots
    assert (spot.check.stage, spot.check.name) == (stage, what)
    assert spot.source == f"{file}:8"
    for text in (markdown(report), page(report)):
        assert what.replace("'", "&#x27;" if text.startswith("<") else "'") in text
        assert f"{file}:8" in text
    assert verdict(report).startswith("0 of 1 models passed")


def test_small_gradients_are_compared_by_their_own_size() -> None:
    small = torch.tensor([3e-9, 1e-9])
    scale = steps.scale_of(small)
    assert 0.5 <= float((small * scale).max()) < 1
    assert torch.equal(small * scale / scale, small)
    assert steps.scale_of(torch.tensor([7])) == 1
    assert steps.scale_of(torch.tensor([0.0])) == 1
    assert steps.scale_of(torch.tensor([float("inf")])) == 1


def test_what_does_not_compile_is_listed_with_its_line(file: Path) -> None:
    report = run_suite([f"{file}:unsupported", f"{file}:fails"])
    assert not report.passed
    (operator,) = report.to_dict()["unsupported"]
    assert operator["overload"] == "torchstone_suite_tests.mystery.default"
    assert operator["models"][f"{file}:unsupported"] == [f"{file}:19"]
    assert "the checkpoint is gone" in report.to_dict()["models"][1]["error"]
    assert "torchstone_suite_tests.mystery.default" in markdown(report)


def test_names_of_the_suite() -> None:
    asked = ["mlp", "cnn", "resnet18", "unet", "autoencoder", "bert", "gpt2", "llama", "vit"]
    asked += ["lstm", "mixtral", "dlrm"]
    assert names_of(()) == list(SUITE) == asked
    assert set(names_of((), quick=True)) < set(asked)
    assert names_of(("mlp", "mlp")) == ["mlp"]
    assert len(names_of((), inventory=True)) > 150


def test_a_name_that_leads_nowhere_ends_the_run_before_it_begins() -> None:
    with pytest.raises(ModelError, match="'x' is neither place:factory nor in the zoo"):
        names_of(("mlp", "x"), inventory=True)


@pytest.mark.parametrize("name", ["unet", "lstm", "dlrm"])
def test_models_of_the_suite_are_built(name: str) -> None:
    model = load(name)
    assert isinstance(model, Model)
    model.model(*model.args)


def test_torchs_own_modules_have_no_line_of_the_user() -> None:
    comparison = compare(torch.ones(2).numpy(), torch.zeros(2).numpy())
    assert source_of(torch.nn.Linear(2, 2), Check("step", "gradient of weight", comparison)) == ""


def test_a_model_that_fails_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("out of order")

    monkeypatch.setattr(suite, "verify", broken)
    report = run_suite([f"{file}:half", "mlp"])
    assert [entry.error for entry in report.entries] == ["RuntimeError: out of order"] * 2


def test_what_was_left_out_is_on_every_page(mlp: SuiteReport, monkeypatch: pytest.MonkeyPatch) -> None:
    found = mlp.entries[0].found
    assert found is not None
    monkeypatch.setattr(found, "notes", ["no stage step: whole steps leave nothing to eager PyTorch"])
    for text in (markdown(mlp), page(mlp)):
        assert "whole steps leave nothing to eager PyTorch" in text
