from __future__ import annotations

from pathlib import Path

import pytest
import torch

from optest.errors import UsageError
from optest.torch.model_calls import count_calls

MODEL = """
import torch

def make():
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU(), torch.nn.Linear(3, 3))
    return (lambda x: model(x) + x.reshape(x.shape)), (torch.ones(2, 3),)

def broken():
    return (lambda x: x @ x), (torch.ones(2, 3),)

def none():
    return 3
"""


@pytest.fixture(autouse=True)
def _module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "optest_called_model.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)


def test_calls_are_counted_by_name() -> None:
    assert count_calls("optest_called_model:make") == {
        "torch.nn.functional.linear": 2,
        "torch.nn.functional.relu": 1,
        "torch.Tensor.reshape": 1,
        "torch.Tensor.add": 1,
    }


def test_an_exported_program_is_a_model_too(tmp_path: Path) -> None:
    program = torch.export.export(torch.nn.Linear(3, 2), (torch.ones(4, 3),))
    torch.export.save(program, tmp_path / "model.pt2")
    assert count_calls(str(tmp_path / "model.pt2")) == {"torch.linear": 1}


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ("optest_called_model:broken", "raised RuntimeError"),
        ("optest_called_model:none", "gives no model"),
        ("optest_called_model:missing", "gives no model"),
        ("optest_called_model", "is not a model"),
        ("missing.pt2", "is not a program of torch.export"),
    ],
)
def test_what_is_no_model(model: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        count_calls(model)
