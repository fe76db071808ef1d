"""Exponential moving average of a model: deepcopy on the GPU, foreach updates, swap for evaluation."""

import copy

import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

torch.manual_seed(5)
model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)).cuda()
ema = copy.deepcopy(model).eval().requires_grad_(False)
averaged = AveragedModel(model, device="cuda", multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)
optimizer = torch.optim.RMSprop(model.parameters(), lr=0.01)

for _ in range(3):
    loss = model(torch.randn(6, 3, device="cuda")).pow(2).mul(torch.rand(4, device="cuda")).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        pairs = list(zip(ema.state_dict().values(), model.state_dict().values(), strict=True))
        for old, new in pairs:
            if old.is_floating_point():
                old.lerp_(new, 0.1)
            else:
                old.copy_(new)
    averaged.update_parameters(model)

assert all(value.is_cuda for value in ema.state_dict().values())
torch.save({"ema": ema.state_dict(), "averaged": averaged.module.state_dict()}, "result.pt")
