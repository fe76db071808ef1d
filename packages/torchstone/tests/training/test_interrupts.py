"""Ctrl-C, and signal handlers that raise, leave whole weights that can be trained on."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

import torchstone
from interrupts import assert_same, batches, interrupt_next, network, trained
from torchstone.config import override


def test_an_interrupted_step_has_made_its_update(monkeypatch: pytest.MonkeyPatch) -> None:
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    with override(tuning=False):
        step = torchstone.compile_step(model, optimizer, torch.nn.functional.mse_loss)
        given = batches(6)
        for batch in given[:3]:
            step(*batch)
        interrupt_next(monkeypatch)
        with pytest.raises(KeyboardInterrupt):
            step(*given[3])
        _ = [torch.randn(64, 64) for _ in range(64)]  # takes memory that was freed
        assert_same(model.state_dict(), trained(4))
        for batch in given[4:]:
            step(*batch)
    assert_same(model.state_dict(), trained(6))


SCRIPT = """
import os, signal, torch, torchstone
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
torchstone.config.tuning = False
step = torchstone.compile_step(model, optimizer, torch.nn.functional.mse_loss)
inputs, targets = torch.randn(64, 256), torch.randn(64, 256)
step(inputs, targets)
for number in range(20):
    before = [p.detach().clone() for p in model.parameters()]
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    # again and again, because JAX's callback of the garbage collector may swallow the exception
    signal.setitimer(signal.ITIMER_REAL, 0.002 + 0.0007 * number, 0.5)
    steps = 0
    try:
        while True:
            step(inputs, targets)
            steps += 1
    except KeyboardInterrupt:
        signal.setitimer(signal.ITIMER_REAL, 0)
    taken = [torch.randn(512, 256) for _ in range(8)]
    for p, old in zip(model.parameters(), before):
        assert (p - old).abs().max() < 1e-3 * (steps + 2), number
    step(inputs, targets)
"""


def test_real_signals() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
