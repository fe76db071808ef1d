# run:
"""Four small batches accumulated give the gradient of one large one; so do hooks and zero_grad's forms."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(5, 7), nn.SiLU(), nn.Linear(7, 1)).cuda()
x, y = torch.randn(16, 5), torch.randn(16, 1)
nn.functional.mse_loss(model(x.cuda()), y.cuda()).backward()
whole = [p.grad.clone() for p in model.parameters()]
model.zero_grad(set_to_none=False)
assert all(p.grad.abs().sum().item() == 0 for p in model.parameters())
seen = []
handle = model[0].weight.register_hook(lambda grad: seen.append(grad.device))
for part, target in zip(x.chunk(4), y.chunk(4), strict=False):
    (nn.functional.mse_loss(model(part.cuda()), target.cuda()) / 4).backward()
handle.remove()
assert seen == [torch.device("cuda:0")] * 4
for parameter, expected in zip(model.parameters(), whole, strict=False):
    torch.testing.assert_close(parameter.grad, expected)
model.zero_grad()
assert all(p.grad is None for p in model.parameters())
