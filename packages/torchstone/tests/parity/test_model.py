"""From a name to a model. What goes wrong there, and its text, is tested with the command line."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from torchstone.errors import ModelError
from torchstone.parity.model import load_model
from torchstone.parity.zoo import MODELS

FILE = """\
from dataclasses import dataclass
from a_neighbour import WIDTH
import torch

@dataclass
class Options:
    width: "int"

def factory():
    return torch.nn.Linear(Options(WIDTH).width, 2), [torch.randn(1, WIDTH)], {}
"""


def test_a_file_imports_its_neighbours_and_shadows_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "a_neighbour.py").write_text("WIDTH = 5\n")
    (tmp_path / "json.py").write_text(FILE)
    before = sys.modules["json"]
    loaded = load_model(f"{tmp_path / 'json.py'}:factory")
    assert sys.modules["json"] is before
    assert isinstance(loaded.model, torch.nn.Linear)
    assert loaded.args[0].shape == (1, 5)
    assert loaded.kwargs == {}


def test_a_name_that_is_nearly_one_of_the_zoo() -> None:
    with pytest.raises(ModelError, match=r"next: write tiny-llama, or package\.module:factory"):
        load_model("tiny-lama")


def test_a_module_in_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models_of_a_test.py").write_text("def f():\n    return abs, (1,), {'x': 2}\n")
    loaded = load_model("models_of_a_test:f")
    assert (loaded.name, loaded.model, loaded.args, loaded.kwargs) == (
        "models_of_a_test:f",
        abs,
        (1,),
        {"x": 2},
    )


def test_a_module_whose_own_import_fails_is_not_called_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "needs_another.py").write_text("import not_installed_anywhere\n")
    with pytest.raises(ModelError, match="importing needs_another failed: ModuleNotFoundError: No module"):
        load_model("needs_another:f")


@pytest.mark.kept("cnn", "mlp", "vit")
@pytest.mark.parametrize("name", MODELS)
def test_the_zoo_is_repeatable_and_without_chance(name: str) -> None:
    if name not in ("mlp", "cnn"):
        pytest.importorskip("transformers", reason="the extra torchstone[models] is not installed")
    first, again = load_model(name), load_model(name)
    assert isinstance(first.model, torch.nn.Module)
    assert isinstance(again.model, torch.nn.Module)
    assert not first.model.training
    for one, other in zip(first.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(one, other)
    dropouts = [module for module in first.model.modules() if isinstance(module, torch.nn.Dropout)]
    assert all(module.p == 0 for module in dropouts)
