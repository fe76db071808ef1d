"""The first value that departs is found, and named for what it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from torchstone.errors import ConfigError, ModelError
from torchstone.lowering import load
from torchstone.parity.bisect import Finding, Kind, bisect
from torchstone.parity.faults.broken import in_place
from torchstone.parity.faults.catalogue import faults_of
from torchstone.parity.model import Model

aten = torch.ops.aten


class Small(nn.Module):
    """Two layers with everything that results can be: a dict, integers, truth values."""

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
    """``overload``'s lowering with a fault of the catalogue."""
    lowering = load().get(overload)
    assert lowering is not None
    return in_place(lowering, next(one for one in faults_of(lowering) if one.name == fault))


def line_of(text: str) -> str:
    """``file:line`` of the line of this file with a text."""
    lines = open(__file__, encoding="utf-8").read().splitlines()  # noqa: SIM115
    (number,) = [i for i, one in enumerate(lines, 1) if text in one and "line_of" not in one]
    return f"{__file__}:{number}"


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
    assert found.engines == {"pjrt": "wrong", "reference": "wrong"}


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


def test_a_random_number_from_elsewhere_is_the_models_own() -> None:
    import random

    def noisy(x: torch.Tensor) -> torch.Tensor:
        return x * random.random()

    found = search(model(noisy, torch.randn(3)))
    assert found is not None
    assert (found.kind, found.operator) == (Kind.NONDETERMINISM, "aten.mul.Tensor")
    assert found.line == line_of("return x * random.random()")


def test_a_model_that_eager_cannot_run_is_one_error() -> None:
    with pytest.raises(ModelError, match="eager PyTorch cannot run the model: RuntimeError"):
        search(model(nn.Linear(3, 2), torch.randn(4, 5)))


def test_an_unknown_optimizer_is_one_error() -> None:
    with pytest.raises(ConfigError, match=r"no step can contain an optimizer called 'LBFGS'(?s:.*)AdamW"):
        search(small(), optimizer="LBFGS")
