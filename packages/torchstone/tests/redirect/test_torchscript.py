"""``torch.jit`` in redirected code: scripted and traced code stays Python, and saving compiles it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import torchstone
from torchstone.errors import RedirectWarning

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")


@pytest.fixture(autouse=True)
def scope() -> Iterator[None]:
    with torchstone.redirected(target="cpu"):
        yield


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x).relu()


def test_scripted_code_runs_and_its_tensors_are_on_cuda() -> None:
    def move(x: torch.Tensor) -> torch.Tensor:
        return x.cuda() + torch.ones(2, device="cuda") if x.is_cuda else x.to("cuda")

    with pytest.warns(RedirectWarning, match=r"torch\.jit\.script: TorchScript is off") as told:
        scripted = torch.jit.script(torch.jit.script(move))
    assert len([one for one in told if one.category is RedirectWarning]) == 1
    assert scripted(torch.ones(2)).device == torch.device("cuda:0")
    assert scripted(torch.ones(2, device="cuda")).tolist() == [2, 2]


@pytest.mark.parametrize("kind", ["script", "trace"])
@pytest.mark.parametrize("device", [None, "cuda", "cpu"])
def test_a_module_is_saved_and_loaded(kind: str, device: str | None, tmp_path: Path) -> None:
    model, x = Model().cuda(), torch.randn(3, 2, device="cuda")
    with pytest.warns(RedirectWarning, match="TorchScript is off"):
        made: Any = torch.jit.script(model) if kind == "script" else torch.jit.trace(model, x)
    assert made is model
    expected = made(x)
    assert expected.is_cuda
    assert torch.jit.freeze(made.eval()) is made
    made.save(tmp_path / "own.pt")
    torch.jit.save(made, tmp_path / "function.pt")
    for name in ("own.pt", "function.pt"):
        loaded = torch.jit.load(tmp_path / name, map_location=device)
        assert isinstance(loaded, torch.jit.ScriptModule)
        assert {one.is_cuda for one in loaded.parameters()} == {device == "cuda"}
        torch.testing.assert_close(loaded(x.cpu()).detach(), expected.cpu().detach())


def test_pytorch_s_own_code_compiles() -> None:
    space: dict[str, Any] = {"__name__": "torch.somewhere", "torch": torch}
    exec("def scripted(function): return torch.jit.script(function)", space)
    assert isinstance(space["scripted"](double), torch.jit.ScriptFunction)


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2
