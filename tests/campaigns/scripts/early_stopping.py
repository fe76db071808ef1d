# run:
"""The best weights are kept with .cpu() and restored after the loss has blown up."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(4, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=5.0)
x = torch.randn(32, 4)
y = x @ torch.tensor([[1.0], [-2.0], [3.0], [0.5]])
x, y = x.cuda(), y.cuda()
best, best_loss, losses = None, float("inf"), []
for _ in range(12):
    loss = nn.functional.mse_loss(model(x), y)
    losses.append(loss.item())
    if loss.item() < best_loss:
        best_loss = loss.item()
        best = {name: value.cpu() for name, value in model.state_dict().items()}
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
assert losses[-1] > 100 * best_loss
assert {value.device.type for value in best.values()} == {"cpu"}
model.load_state_dict(best)
assert nn.functional.mse_loss(model(x), y).item() == best_loss
