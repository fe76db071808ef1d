# run:
"""A GRU cell unrolled by hand, with teacher forcing, masks and a fresh state for each batch."""

import torch
from torch import nn

torch.manual_seed(0)
cell, out = nn.GRUCell(4, 6).cuda(), nn.Linear(6, 4).cuda()
tokens = torch.eye(4, device="cuda")
target = torch.tensor([[0, 1, 2, 3], [3, 2, 1, 0]]).cuda()
mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]], dtype=torch.bool).cuda(non_blocking=True)
parameters = [*cell.parameters(), *out.parameters()]
optimizer = torch.optim.Adam(parameters, lr=0.05)
for _step in range(60):
    state = torch.zeros(2, 6).cuda()
    losses = []
    for position in range(3):
        state = cell(tokens[target[:, position]], state)
        losses.append(nn.functional.cross_entropy(out(state), target[:, position + 1], reduction="none"))
    loss = torch.stack(losses, 1).masked_select(mask[:, 1:]).mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_value_(parameters, 1.0)
    optimizer.step()
assert loss.item() < 0.1
prediction = out(cell(tokens[target[:, 0]], torch.zeros(2, 6, device="cuda"))).argmax(1)
assert prediction.tolist() == [1, 2]
