"""Code written for CUDA runs on the device: a script that names no other one, and its child processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import subprocess, sys
import torch
from torch import nn

assert torch.cuda.is_available() and torch.cuda.device_count() == 1
torch.cuda.manual_seed_all(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
scaler = torch.amp.GradScaler("cuda")
x = torch.randn(32, 8, device="cuda:0")
y = x.sum(1, keepdim=True)
losses = []
for _ in range(4):
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = nn.functional.mse_loss(model(x).float(), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    losses.append(loss.item())
assert losses == sorted(losses, reverse=True), losses
with torch.cuda.stream(torch.cuda.Stream()):
    assert (x * 2).is_cuda
torch.cuda.synchronize()
torch.save(model.state_dict(), sys.argv[1])
weight = torch.load(sys.argv[1], map_location="cuda")["0.weight"]
assert weight.device.type == model[0].weight.device.type == "pjrt", weight.device
assert torch.cuda.memory_allocated() == torch.pjrt.memory_allocated() > 0
assert torch.pjrt.fallbacks() == {}
child = "import torch; assert torch.ones(2, device='cuda').device.type == 'pjrt'"
subprocess.run([sys.executable, "-c", child], check=True)
"""


def test_a_script_for_cuda_trains_on_the_device(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "torchstone.redirect", "--device", "pjrt", script, tmp_path / "model.pt"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_an_index_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    command = [sys.executable, "-m", "torchstone.redirect", "--target", "pjrt:1", tmp_path / "train.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 3
    assert "target 'pjrt:1' is absent: there are 1 pjrt device(s), counted from 0" in done.stderr
