"""The test device is a device: what it computes, keeps and saves stays on it and equals the CPU's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent

PROGRAM = """
import copy, io, pickle
import torch
from redirect.device import KERNELS, register
register()
DEVICE = torch.device("testdev", 0)

def train(device):
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Flatten(),
        torch.nn.Dropout(0.3), torch.nn.Linear(36, 3),
    ).to(device)
    optimizer = torch.optim.AdamW(net.parameters())
    for _ in range(3):
        x, y = torch.randn(5, 1, 5, 5).to(device), torch.randint(3, (5,)).to(device)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
    assert all(p.grad.device.type == device.type for p in net.parameters())
    return {name: value.cpu() for name, value in net.state_dict().items()}

torch.testing.assert_close(train(DEVICE), train(torch.device("cpu")))
assert KERNELS["aten.convolution.default"] == 3, KERNELS

x = torch.arange(6.0, device=DEVICE).view(2, 3)
view = x.t()[1]
view.mul_(10)
assert view.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
assert x.cpu().tolist() == [[0, 10, 2], [3, 40, 5]]
assert torch.empty(0, device=DEVICE).resize_(4).fill_(2).tolist() == [2, 2, 2, 2]

buffer = io.BytesIO()
torch.save({"x": x, "view": view}, buffer)
for location, kind in ((None, "testdev"), ("cpu", "cpu"), (DEVICE, "testdev")):
    buffer.seek(0)
    loaded = torch.load(buffer, map_location=location)
    assert loaded["view"].device.type == kind and loaded["view"].tolist() == [10, 40]
    assert loaded["x"].untyped_storage().data_ptr() == loaded["view"].untyped_storage().data_ptr()
for copied in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
    assert copied.device.type == "testdev" and copied.tolist() == x.tolist()
    assert copied.data_ptr() != x.data_ptr()

with torch.autocast("testdev", torch.bfloat16):
    a = torch.ones(2, 2, device=DEVICE, requires_grad=True)
    assert (a @ a).dtype == torch.bfloat16
    assert torch.nn.functional.mse_loss(a @ a, a).dtype == torch.float32
    (a @ a).sum().backward()
assert a.grad.dtype == torch.float32 and a.grad.tolist() == [[4, 4], [4, 4]]

before = torch.testdev.memory_allocated()
held = torch.zeros(1000, device=DEVICE)
assert torch.testdev.memory_allocated() == before + 4000
del held
assert torch.testdev.memory_allocated() == before
assert torch.testdev.max_memory_allocated() >= before + 4000
print("done")
"""


def test_the_device_computes_keeps_and_saves() -> None:
    """Run in a process of its own, because a PrivateUse1 name is registered once, for good."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=HERE.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "done\n"
