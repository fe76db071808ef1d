# run:
"""make_graphed_callables around a module: forward and backward are replayed on new data."""

import copy

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2)).cuda()
twin = copy.deepcopy(model).cpu()
sample = torch.randn(4, 3, device="cuda", requires_grad=True)
graphed = torch.cuda.make_graphed_callables(model, (sample,))
for _ in range(3):
    x = torch.randn(4, 3)
    y = x.clone().requires_grad_()
    x = x.cuda().requires_grad_()
    model.zero_grad()
    twin.zero_grad()
    ours, theirs = graphed(x), twin(y)
    torch.testing.assert_close(ours.cpu(), theirs)
    ours.square().sum().backward()
    theirs.square().sum().backward()
    torch.testing.assert_close(x.grad.cpu(), y.grad)
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(p.grad.cpu(), q.grad)
