"""The static scan for device-specific code."""

from __future__ import annotations

from pathlib import Path

from torchstone.gaps.branches import Branch, BranchIndex, counts, scan_source, scan_torch
from torchstone.gaps.surface import Api

SOURCE = """
import torch
CUDA = torch.cuda.is_available()
def pick(x, device):
    if x.is_cuda:
        return torch.cuda.current_stream()
    return "cuda" if device.type == "cuda:0" else ("mps" if x.is_mps else "cpu")
class Layer:
    def __init__(self, device):
        self.fused = device.type != "cuda"
    def run(self, x):
        assert x.device.type in ("cpu", "mps")
        while x.is_cpu: pass
        return [y for y in x if y.is_cuda]
    def choose(self, kind):
        match kind:
            case "cuda": return 1
            case _: return "cuda"
"""


def test_conditions_are_told_from_uses() -> None:
    found = scan_source(SOURCE, "torch.shop")
    assert [(one.line, one.function, one.device) for one in found if one.decides] == [
        (5, "pick", "cuda"),
        (7, "pick", "cuda"),
        (7, "pick", "mps"),
        (10, "Layer.__init__", "cuda"),
        (12, "Layer.run", "cpu"),
        (12, "Layer.run", "mps"),
        (13, "Layer.run", "cpu"),
        (14, "Layer.run", "cuda"),
        (17, "Layer.choose", "cuda"),
    ]
    assert [(one.line, one.function, one.device) for one in found if not one.decides] == [
        (3, "", "cuda"),
        (6, "pick", "cuda"),
    ]


def test_they_are_counted_by_module_and_found_by_api() -> None:
    found = scan_source(SOURCE, "torch.shop")
    assert counts(found) == {"torch.shop": {"cuda": 5, "mps": 2, "cpu": 2}}
    index = BranchIndex(found)
    layer = Api("torch.Layer", "class", "torch.shop.Layer")
    run = Api("torch.run", "method", "torch.shop.Layer.run")
    assert [one.line for one in index.of(layer, "cuda")] == [10]  # public methods are listed apart
    assert [one.line for one in index.of(run, "cpu")] == [12, 13]
    assert index.of(Api("torch.pick2", "function", "torch.shop.pick2"), "cuda") == []


def test_what_is_no_python_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "template.py").write_text("{{ cuda }} is not Python")
    (tmp_path / "nn").mkdir()
    (tmp_path / "nn" / "__init__.py").write_text("def f(x):\n    return 1 if x.is_cuda else 2\n")
    assert scan_torch(folder=tmp_path) == (Branch("torch.nn", 2, "f", "cuda", True),)


def test_the_installed_torch_is_scanned() -> None:
    found = scan_torch({"torch.nn.modules.rnn", "torch.nn.functional"})
    assert {one.module for one in found} <= {"torch.nn.modules.rnn", "torch.nn.functional"}
    assert "RNNBase.flatten_parameters" in {one.function for one in found if one.device == "cuda"}
