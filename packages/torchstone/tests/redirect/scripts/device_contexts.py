"""Devices chosen by context: torch.device, torch.cuda.device, set_default_device, get_default_device."""

import torch

with torch.device("cuda"):
    a = torch.arange(4.0)
    layer = torch.nn.Linear(4, 2, bias=False)
    with torch.device("cpu"):
        inner = torch.ones(2)
    back = torch.zeros(1)
assert a.is_cuda
assert layer.weight.is_cuda
assert a.device == back.device
assert inner.device.type == torch.ones(1).device.type == "cpu"
torch.nn.init.constant_(layer.weight, 0.5)

with torch.cuda.device(0):
    b = torch.zeros(2, device="cuda").add_(1)
    with torch.cuda.device(torch.device("cuda:0")):
        assert torch.cuda.current_device() == 0
with torch.cuda.device_of(b):
    c = b * 2

torch.set_default_device("cuda")
try:
    d = torch.linspace(0, 1, 3)
    explicit = torch.zeros(2, device="cpu")
    assert d.is_cuda
    assert torch.get_default_device().type == d.device.type
    assert explicit.device.type == "cpu"
finally:
    torch.set_default_device(None)

accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
print("accelerator:", accelerator)
result = layer(a) + c
torch.save({"result": result, "inner": inner, "d": d, "explicit": explicit}, "result.pt")
