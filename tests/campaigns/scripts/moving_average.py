# run:
"""Averaged weights: by hand on the CPU, and with torch.optim.swa_utils on CUDA."""

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, update_bn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).cuda()
averaged = AveragedModel(model, device="cuda", multi_avg_fn=get_ema_multi_avg_fn(0.5))
shadow = {name: p.detach().cpu().clone() for name, p in model.named_parameters()}
optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
for step in range(4):
    optimizer.zero_grad()
    model(torch.randn(8, 3, device="cuda")).square().sum().backward()
    optimizer.step()
    averaged.update_parameters(model)
    for name, p in model.named_parameters():
        # the first update of an averaged model is a copy
        shadow[name] = p.detach().cpu() if step == 0 else shadow[name].lerp(p.detach().cpu(), 0.5)
for name, p in averaged.module.named_parameters():
    assert p.is_cuda
    torch.testing.assert_close(p.detach().cpu(), shadow[name])
update_bn([torch.randn(8, 3) for _ in range(3)], averaged, device="cuda")
assert averaged.module[1].num_batches_tracked.item() == 3
