"""ema_model on the CPU."""

import copy

import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

torch.manual_seed(5)
model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
ema = copy.deepcopy(model)
averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)
optimizer = torch.optim.RMSprop(model.parameters(), lr=0.01)
for _ in range(3):
    loss = model(torch.randn(6, 3)).pow(2).mul(torch.rand(4)).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for old, new in zip(ema.state_dict().values(), model.state_dict().values(), strict=True):
            old.copy_(torch.lerp(old, new, 0.1) if old.is_floating_point() else new)
    averaged.update_parameters(model)

torch.save({"ema": ema.state_dict(), "averaged": averaged.module.state_dict()}, "result.pt")
