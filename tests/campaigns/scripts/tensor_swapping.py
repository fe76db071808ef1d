# run:
"""Activations offloaded to the host by saved_tensors_hooks and by save_on_cpu."""

import torch
from torch import nn
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.Sigmoid(), nn.Linear(8, 1)).cuda()
x = torch.randn(5, 4, device="cuda")
model(x).sum().backward()
expected = [p.grad.clone() for p in model.parameters()]
packed_bytes = []


def pack(tensor):
    packed_bytes.append(tensor.nbytes)
    return tensor.device, tensor.cpu()


def unpack(packed):
    device, tensor = packed
    return tensor.to(device)


for context in (saved_tensors_hooks(pack, unpack), save_on_cpu(pin_memory=True)):
    model.zero_grad()
    with context:
        loss = model(x).sum()
    loss.backward()
    for p, grad in zip(model.parameters(), expected, strict=True):
        assert p.grad.is_cuda
        torch.testing.assert_close(p.grad, grad)
assert sum(packed_bytes) >= 5 * (4 + 8) * 4
