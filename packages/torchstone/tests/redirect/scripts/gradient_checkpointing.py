"""Activation checkpointing with dropout: the recomputation must see the same random numbers."""

import torch
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

torch.manual_seed(1)
torch.cuda.manual_seed(1)
block = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.Dropout(0.4), torch.nn.Tanh()).cuda()
stack = torch.nn.Sequential(*[torch.nn.Linear(6, 6) for _ in range(4)]).cuda()
x = torch.randn(3, 6, device="cuda", requires_grad=True)

torch.manual_seed(2)
losses, gradients = [], []
for reentrant in (True, False):
    out = checkpoint(block, x, use_reentrant=reentrant, preserve_rng_state=True)
    out = checkpoint_sequential(stack, 2, out, use_reentrant=reentrant)
    loss = out.square().mean()
    (gradient,) = torch.autograd.grad(loss, x) if not reentrant else (None,)
    if reentrant:
        loss.backward()
        gradient, x.grad = x.grad, None
    losses.append(loss.item())
    gradients.append(gradient)

with torch.autocast("cuda", dtype=torch.bfloat16):
    out = checkpoint(stack, x, use_reentrant=False)
out.float().sum().backward()
torch.save({"losses": losses, "gradients": gradients, "amp": x.grad}, "result.pt")
