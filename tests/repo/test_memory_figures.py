"""The benchmark of memory: one step in a child process, and the report of its figures."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from benchmarks import memory


def figures(step: int) -> dict[str, Any]:
    one = {"step": 100 << 20, "between": 50 << 20, "process": 200 << 20, "engine": 0}
    return {"eager": one, "torchstone": one, "step": {**one, "step": step << 20, "engine": 3 << 20}}


@pytest.mark.parametrize(("step", "code"), [(110, 0), (111, 1)])
def test_a_step_that_takes_more_than_the_bound_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], step: int, code: int
) -> None:
    monkeypatch.setattr(memory, "_in_child", lambda _, candidate: figures(step)[candidate])
    assert memory.main(["--models", "mlp", "--markdown"]) == code
    printed = capsys.readouterr()
    assert f"| mlp | 100.0 | 100.0 | {step}.0 | 1.00 | {step / 100:.2f} |" in printed.out
    assert ("more than 1.1 × eager's: mlp" in printed.err) == bool(code)


def test_memory_that_lives_between_steps_is_counted_once() -> None:
    network = torch.nn.Linear(256, 256, bias=False)
    optimizer = torch.optim.SGD(network.parameters(), momentum=0.9)
    batch = torch.randn(4, 256)
    network(batch).sum().backward()
    optimizer.step()
    size = network.weight.nbytes
    found = memory._live(network, optimizer, (batch, batch.view(2, 512)))
    assert found == 3 * size + batch.nbytes  # weights, gradients, momentum


def test_a_rise_is_what_a_call_takes_while_it_runs() -> None:
    rise = memory._rise_of(lambda: bytearray(64 << 20))
    assert 60 << 20 < rise < 80 << 20
