# run:
"""A stopper class that keeps parameters, buffers and the optimizer's state on the CPU."""

import copy

import torch
from torch import nn


class Stopper:
    def __init__(self, patience):
        self.patience, self.bad, self.best, self.kept = patience, 0, None, None

    def __call__(self, score, model, optimizer):
        if self.best is None or score < self.best:
            self.best, self.bad = score, 0
            self.kept = (
                [p.detach().cpu() for p in model.parameters()],
                [b.to("cpu") for b in model.buffers()],
                copy.deepcopy(optimizer.state_dict()),
            )
        else:
            self.bad += 1
        return self.bad >= self.patience


torch.manual_seed(1)
model = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Linear(8, 1)).to("cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.5)
stopper, history = Stopper(2), []
x, y = torch.randn(16, 3, device="cuda"), torch.randn(16, 1, device="cuda")
for epoch in range(30):
    scale = 1.0 if epoch < 5 else -1.0  # from here on it climbs
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    history.append(loss.item())
    if stopper(loss.item(), model, optimizer):
        break
    (scale * loss).backward()
    optimizer.step()
assert 6 <= epoch < 12
parameters, buffers, state = stopper.kept
assert any(not torch.equal(p, q.cpu()) for p, q in zip(parameters, model.parameters(), strict=False))
assert buffers[-1].item() <= epoch
assert model[1].num_batches_tracked.item() == epoch + 1
with torch.no_grad():
    for parameter, value in zip(model.parameters(), parameters, strict=False):
        parameter.copy_(value)
optimizer.load_state_dict(state)
moment = optimizer.state[model[0].weight]["momentum_buffer"]
assert moment.is_cuda
assert abs(nn.functional.mse_loss(model(x), y).item() - min(history)) < 1e-5
