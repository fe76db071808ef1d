"""``torch.compile`` in redirected code: PyTorch's compiler sees the target, the script sees CUDA."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import torchstone
from torchstone.errors import RedirectWarning

needs_a_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="Inductor compiles with g++")


@pytest.fixture(autouse=True)
def scope() -> Iterator[None]:
    torch._dynamo.reset()
    with torchstone.redirected(target="cpu", devices=2):
        yield


def _places_and_questions(x: torch.Tensor) -> Any:
    y = torch.zeros(3, device=x.device) + x.cuda() + torch.ones(3, device="cuda") + torch.arange(3, device=0)
    if x.device == torch.device("cuda:0") and x.is_cuda and x.device.type == "cuda":
        y = y + 1
    return y, y.cpu(), y.get_device(), x.to("cuda:1"), x.cpu().is_cuda, y.cpu() + torch.ones(3)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_devices_in_a_full_graph_are_what_they_are_outside(backend: str) -> None:
    x = torch.rand(3, device="cuda")
    found = torch.compile(_places_and_questions, fullgraph=True, backend=backend)(x)
    for one, other in zip(found, _places_and_questions(x), strict=True):
        if isinstance(one, torch.Tensor):
            assert one.device == other.device
            torch.testing.assert_close(one, other)
        else:
            assert one == other


def test_a_compiled_transfer_is_a_copy() -> None:
    x = torch.zeros(3, device="cuda")
    kept = torch.compile(lambda x: x.cpu(), backend="eager")(x)
    x.fill_(1)
    assert kept.tolist() == [0, 0, 0]


@needs_a_compiler
@pytest.mark.parametrize("mode", [None, "default", "reduce-overhead", "max-autotune"])
def test_inductor_trains_with_every_mode(mode: str | None) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 1)).cuda()
    x = torch.randn(16, 4, device="cuda")
    expected = torch.autograd.grad(model(x).pow(2).sum(), list(model.parameters()))
    if mode in ("reduce-overhead", "max-autotune"):
        with pytest.warns(RedirectWarning, match=r"no CUDA graphs are used on cpu$"):
            compiled = torch.compile(model, mode=mode)
    else:
        compiled = torch.compile(model, mode=mode)
    output = compiled(x)
    assert output.device == torch.device("cuda:0")
    output.pow(2).sum().backward()
    for parameter, gradient in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)
