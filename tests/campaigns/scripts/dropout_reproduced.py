# run:
"""Checkpointed dropout is recomputed with the same mask; so is a saved and restored state."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

layer = nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.5), nn.Linear(16, 4)).cuda()
x = torch.randn(3, 16, device="cuda", requires_grad=True)
results = []
for run in (
    lambda: layer(x),
    lambda: checkpoint(layer, x, use_reentrant=False),
    lambda: checkpoint(layer, x, use_reentrant=True),
):
    torch.cuda.manual_seed(9)
    layer.zero_grad()
    x.grad = None
    run().sum().backward()
    results.append((x.grad.clone(), layer[0].weight.grad.clone()))
for grad, weight in results[1:]:
    torch.testing.assert_close(grad, results[0][0])
    torch.testing.assert_close(weight, results[0][1])
state = torch.cuda.get_rng_state()
first = nn.functional.dropout(torch.ones(100, device="cuda"))
torch.cuda.set_rng_state(state)
assert torch.equal(nn.functional.dropout(torch.ones(100, device="cuda")), first)
assert 20 < (first == 0).sum().item() < 80
