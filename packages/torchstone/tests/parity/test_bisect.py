"""The first value that departs is found, and named for what it is."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from injected_faults import wrong_engine
from torch import nn

from torchstone.errors import ConfigError, ModelError
from torchstone.lowering import load
from torchstone.parity.bisect import Finding, Kind, bisect
from torchstone.parity.bisect.arbiter import Judge
from torchstone.parity.bisect.script import script_of
from torchstone.parity.faults.broken import in_place
from torchstone.parity.faults.catalogue import faults_of
from torchstone.parity.model import Model, load_model
from torchstone.runtime import ENGINES

aten = torch.ops.aten


class Small(nn.Module):
    """Two layers with every kind of result: a dict, integers and bools."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(6, 5), nn.Tanh())
        self.dropout = nn.Dropout(dropout)
        self.outer = nn.Linear(5, 4)

    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        y = self.outer(self.dropout(self.inner(x)))
        return {"logits": torch.sin(y), "best": y.argmax(-1), "pair": (y > 0, y.exp())}


def small(**options: Any) -> Model:
    return Model("small", Small(**options), (torch.randn(8, 6),))


def model(module: Callable[..., Any], *args: Any) -> Model:
    return Model("the model of a test", module, args)


def search(found: Model, **options: Any) -> Finding | None:
    return bisect(found, **{"fresh_process": False, "optimizer": "SGD", **options}).finding


def broken(overload: Any, fault: str) -> Any:
    """Replace the lowering of ``overload`` by one with a fault of the catalog."""
    lowering = load().get(overload)
    assert lowering is not None
    return in_place(lowering, next(one for one in faults_of(lowering) if one.name == fault))


def line_of(text: str) -> str:
    """Return ``file:line`` of the line in this file that contains a text."""
    lines = open(__file__, encoding="utf-8").read().splitlines()  # noqa: SIM115
    (number,) = [i for i, one in enumerate(lines, 1) if text in one and "line_of" not in one]
    return f"{__file__}:{number}"


@pytest.mark.conformance
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_nothing_departs(dropout: float) -> None:
    report = bisect(small(dropout=dropout), fresh_process=False, optimizer="SGD")
    assert report.finding is None
    assert report.values > 40
    assert any("random numbers" in note for note in report.notes) is (dropout > 0)


def test_a_wrong_lowering_of_the_forward_pass_is_named_with_its_line() -> None:
    with broken(aten.sin.default, "wrong-sign"):
        found = search(small())
    assert found is not None
    assert (found.kind, found.phase, found.operator) == (Kind.LOWERING, "forward", "aten.sin.default")
    assert found.line == line_of('"logits": torch.sin(y)')
    assert (found.engines["pjrt"], found.engines["reference"]) == ("wrong", "wrong")
    assert found.engines.keys() == set(ENGINES)


def test_a_wrong_lowering_of_the_backward_pass_is_named_with_the_forward_line_and_module() -> None:
    with broken(aten.tanh_backward.default, "wrong-sign"):
        found = search(small())
    assert found is not None
    assert (found.kind, found.phase, found.operator) == (
        Kind.LOWERING,
        "backward",
        "aten.tanh_backward.default",
    )
    assert found.module == "inner.1 (Tanh)"
    assert found.line == line_of("self.outer(self.dropout(self.inner(x)))")


def test_a_wrong_lowering_of_the_optimizer_is_named_with_the_optimizers_line() -> None:
    with broken(aten.neg.default, "wrong-sign"):
        found = search(small())
    assert found is not None
    assert (found.kind, found.phase, found.operator) == (Kind.LOWERING, "optimizer", "aten.neg.default")
    assert found.line is not None
    assert "torch/optim/sgd.py:" in found.line


def test_a_wrong_engine_is_told_from_a_wrong_lowering() -> None:
    with wrong_engine("stablehlo.sine", "stablehlo.cosine"):
        found = search(small())
    assert found is not None
    assert (found.kind, found.phase, found.operator) == (Kind.ENGINE, "forward", "aten.sin.default")
    assert (found.engines["pjrt"], found.engines["reference"]) == ("wrong", "right")


def test_an_engine_that_is_wrong_beside_another_operator_only() -> None:
    with wrong_engine("stablehlo.sine", "stablehlo.cosine", "stablehlo.dot_general"):
        found = search(small())
    assert found is not None
    assert (found.kind, found.operator) == (Kind.ENGINE, "aten.sin.default")
    assert "together with operators before it" in found.reason
    assert found.piece is not None
    assert "aten.addmm.default" in {str(node.target) for node in found.piece.nodes}


def test_an_engine_that_is_wrong_where_values_are_fused_only() -> None:
    with wrong_engine("stablehlo.sine", "stablehlo.cosine", most_results=8):
        found = search(small())
    assert found is not None
    assert (found.kind, found.operator) == (Kind.ENGINE, "aten.sin.default")
    assert "fuses operators wrongly" in found.reason


def test_roundings_that_add_up_are_nobodys_fault() -> None:
    found = search(model(lambda x, y: torch.sin(x @ y * 1e6), torch.randn(9, 300), torch.randn(300, 9)))
    assert found is not None
    assert found.kind is Kind.ROUNDING
    assert "right by itself" in found.reason
    assert "against the reference, control's" in found.reason  # the errors of eager PyTorch and of the engine
    assert found.comparison is not None
    assert found.comparison.max_ulp


@pytest.mark.kept("nan")
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_nan_and_infinities_do_not_depart(value: float) -> None:
    x = torch.tensor([[value, 1.0, -2.0, 0.0]])
    assert search(model(lambda x: (x * 2, x.softmax(-1), x.isnan(), x / 0), x), optimizer=None) is None


def test_a_random_number_from_elsewhere_is_the_models_own() -> None:
    import random

    def noisy(x: torch.Tensor) -> torch.Tensor:
        return x * random.random()

    found = search(model(noisy, torch.randn(3)))
    assert found is not None
    assert (found.kind, found.operator) == (Kind.NONDETERMINISM, "aten.mul.Tensor")
    assert found.line == line_of("return x * random.random()")


@pytest.mark.conformance
def test_the_order_of_a_set_differs_in_a_fresh_process_only() -> None:
    factory = f"{Path(__file__).parents[4] / 'tests/campaigns/fault_models.py'}:order_of_a_set"
    found = bisect(load_model(factory), optimizer=None).finding
    assert found is not None
    assert found.kind is Kind.NONDETERMINISM
    assert "another order of sets" in found.reason


@pytest.mark.kept("engine")
@pytest.mark.parametrize("kind", [Kind.LOWERING, Kind.ENGINE])
def test_the_script_shows_the_finding_by_itself(kind: Kind, tmp_path: Path) -> None:
    file = tmp_path / "shown.py"
    fault = (
        broken(aten.sin.default, "wrong-sign")
        if kind is Kind.LOWERING
        else wrong_engine("stablehlo.sine", "stablehlo.cosine")
    )
    with fault:
        report = bisect(small(), fresh_process=False, optimizer="SGD")
        assert report.finding is not None
        file.write_text(script_of(report, Judge(), 0))
        assert _exit_code(file) == 1
    assert _exit_code(file) == 0
    text = file.read_text()
    assert "torch.ops.aten.sin.default(input0)" in text
    assert ".reshape([1, 1])" in text


@pytest.mark.conformance
def test_the_script_of_a_rounding_departs(tmp_path: Path) -> None:
    file = tmp_path / "shown.py"
    chaotic = model(lambda x, y: torch.sin(x @ y * 1e6), torch.randn(9, 300), torch.randn(300, 9))
    report = bisect(chaotic, fresh_process=False)
    file.write_text(script_of(report, Judge(), 0))
    assert _exit_code(file) == 1


@pytest.mark.conformance
def test_the_script_of_a_nondeterminism_starts_the_model_twice(tmp_path: Path) -> None:
    file = tmp_path / "shown.py"
    factory = f"{Path(__file__).parents[4] / 'tests/campaigns/fault_models.py'}:python_random"
    report = bisect(load_model(factory), optimizer=None, fresh_process=False)
    file.write_text(script_of(report, Judge(), 0))
    assert _exit_code(file) == 1


def _exit_code(file: Path) -> int:
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(file), run_name="__main__")
    return int(ended.value.code or 0)


def test_a_model_that_eager_cannot_run_is_one_error() -> None:
    with pytest.raises(ModelError, match="eager PyTorch cannot run the model: RuntimeError"):
        search(model(nn.Linear(3, 2), torch.randn(4, 5)))


def test_an_unknown_optimizer_is_one_error() -> None:
    with pytest.raises(ConfigError, match=r"no step can contain an optimizer called 'LBFGS'(?s:.*)AdamW"):
        search(model(torch.sin, torch.ones(2)), optimizer="LBFGS")
