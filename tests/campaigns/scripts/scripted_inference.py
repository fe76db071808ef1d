# run:
"""A traced model is saved, loaded to the device and frozen; its answers match the module's."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Conv1d(2, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(24, 2)).eval().cuda()
x = torch.randn(3, 2, 8, device="cuda")
with torch.no_grad():
    expected = model(x)
    traced = torch.jit.trace(model, x)
    traced.save("traced.pt")
    loaded = torch.jit.load("traced.pt", map_location="cuda:0")
    for one in (traced, loaded, torch.jit.freeze(loaded.eval())):
        torch.testing.assert_close(one(x).cpu(), expected.cpu())
assert expected.is_cuda
assert not expected.requires_grad
assert {p.device.type for p in model.parameters()} == {"cuda"}
