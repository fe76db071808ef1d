"""``torch.compile(backend="torchstone")`` of code on the device: results are there, and are eager's."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from torchstone.backend.records import recorded
from torchstone.device import engine
from torchstone.runtime import stats

from .mirrored import DEVICE


@pytest.fixture(autouse=True)
def _nothing_compiled_before() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp": (lambda: nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4)), (3, 4)),
    "cnn": (
        lambda: nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten()),
        (5, 1, 6, 6),
    ),
}


@pytest.mark.kept("cnn-True")
@pytest.mark.filterwarnings("error:Dynamo does not know how to trace:UserWarning")
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_a_compiled_model_trains_as_in_eager(name: str, dynamic: bool) -> None:
    make, size = MODELS[name]
    eager, x = make().to(DEVICE), torch.randn(size, device=DEVICE)
    twin = copy.deepcopy(eager)
    compiled = torch.compile(twin, backend="torchstone", dynamic=dynamic)
    optimizers = [torch.optim.SGD(model.parameters(), 0.1, momentum=0.9) for model in (eager, twin)]
    for _ in range(3):
        outputs = []
        for model, optimizer in zip((eager, compiled), optimizers, strict=True):
            optimizer.zero_grad()
            outputs.append(model(x))
            outputs[-1].square().mean().backward()
            optimizer.step()
        torch.testing.assert_close(outputs[1], outputs[0])  # compare the devices, too
    for value, expected in zip(twin.state_dict().values(), eager.state_dict().values(), strict=True):
        torch.testing.assert_close(value, expected)


def test_outputs_are_where_the_graph_says() -> None:
    """Views are views of the caller's tensors, also at new sizes."""

    @torch.compile(backend="torchstone")
    def several(x: torch.Tensor) -> Any:
        made = torch.ones(4, device=DEVICE)
        return (x + made).sum(), x.t(), x.cpu() + 1, torch.arange(3), x

    for rows in (3, 5):
        x = torch.randn(rows, 4, device=DEVICE)
        results = several(x)
        assert [one.device.type for one in results] == [DEVICE, DEVICE, "cpu", "cpu", DEVICE]
        assert results[-1] is x
        torch.testing.assert_close(results[0], (x + 1).sum())
        results[1].zero_()
        assert not x.any()


def test_inputs_are_written() -> None:
    @torch.compile(backend="torchstone")
    def write(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a.add_(1)
        b[0] = 5
        a.t().mul_(2)
        return a + b

    a, b = torch.ones(2, 2, device=DEVICE), torch.zeros(2, 2, device=DEVICE)
    assert write(a, b).tolist() == [[9, 9], [4, 4]]
    assert (a.tolist(), b.tolist()) == ([[4, 4], [4, 4]], [[5, 5], [0, 0]])


def test_a_seed_repeats_random_numbers() -> None:
    dropped = torch.compile(lambda x: F.dropout(x, 0.5) + torch.rand(64, device=DEVICE), backend="torchstone")
    results = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        results.append(dropped(torch.ones(64, device=DEVICE)))
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])


def test_parameters_are_not_copied_on_each_call() -> None:
    """On the CPU a program reads the storage's memory in place; only results of PyTorch get new memory."""
    linear = nn.Linear(64, 64).to(DEVICE)
    compiled = torch.compile(linear, backend="torchstone")
    x = torch.randn(2, 64, device=DEVICE)
    with torch.no_grad():
        compiled(x)
        before = stats().copies_in
        compiled(x)
    assert stats().copies_in == before


def test_memory_that_is_not_the_host_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors are copied through the host, also after a step has changed the parameters."""
    away = dataclasses.replace(engine.place(), shares_host_memory=False)
    monkeypatch.setattr(engine, "place", lambda: away)
    linear = nn.Linear(3, 2).to(DEVICE)
    compiled = torch.compile(linear, backend="torchstone")
    x = torch.arange(6.0, device=DEVICE).view(3, 2).t()
    optimizer = torch.optim.SGD(linear.parameters(), 0.1, fused=True)
    for _ in range(3):
        found, expected = compiled(x), linear(x)
        torch.testing.assert_close(found, expected)
        found.square().sum().backward()
        optimizer.step()
    assert pickle.loads(pickle.dumps(x)).tolist() == x.tolist()


@pytest.mark.parametrize("options", [{}, {"mode": "reduce-overhead"}, {"fullgraph": True, "dynamic": True}])
def test_the_device_s_graphs_need_no_backend_named(options: dict[str, Any]) -> None:
    """No graph goes to Inductor, which cannot generate code for the device."""

    @torch.compile(**options)
    def made(size: int) -> torch.Tensor:
        return torch.ones(size, device=DEVICE) * 2

    linear = nn.Linear(3, 2).to(DEVICE)
    compiled = torch.compile(linear, **options)
    x = torch.ones(4, 3, device=DEVICE)
    with recorded() as graphs:
        found = compiled(x)
        found.sum().backward()
    torch.testing.assert_close(found, linear(x))
    assert linear.weight.grad is not None
    assert linear.weight.grad.device == x.device
    assert made(3).tolist() == [2, 2, 2]
    assert sorted(graph.kind for graph in graphs) == ["backward", "forward"]


def test_dynamo_stays_out_of_the_kernels() -> None:
    """Dynamo would compile the kernels after a graph break, and warn of what it cannot trace in them."""
    code = """
import warnings
import torch, torchstone.device
from torchstone.config import config

config.device_fallback = "silent"
warnings.simplefilter("error", UserWarning)
values = torch.compile(lambda x: torch.linalg.svd(x.unique(dim=0))[1], backend="torchstone")
assert values(torch.eye(3, device="pjrt")).tolist() == [1.0, 1.0, 1.0]
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
