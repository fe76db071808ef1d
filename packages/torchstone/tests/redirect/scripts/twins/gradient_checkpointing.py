"""gradient_checkpointing on the CPU, without checkpoints: the numbers are those of one forward pass."""

import torch

torch.manual_seed(1)
block = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.Dropout(0.4), torch.nn.Tanh())
stack = torch.nn.Sequential(*[torch.nn.Linear(6, 6) for _ in range(4)])
x = torch.randn(3, 6, requires_grad=True)

torch.manual_seed(2)
losses, gradients = [], []
for _ in range(2):
    loss = stack(block(x)).square().mean()
    gradients += torch.autograd.grad(loss, x)
    losses.append(loss.item())

with torch.autocast("cpu", dtype=torch.bfloat16):
    out = stack(x)
(amp,) = torch.autograd.grad(out.float().sum(), x)
torch.save({"losses": losses, "gradients": gradients, "amp": amp}, "result.pt")
