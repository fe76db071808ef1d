"""fsdp_one_process on the CPU: a world of one is plain training."""

import torch

torch.manual_seed(2)
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for i in range(3):
    loss = model(torch.full((2, 4), 0.3 * (i + 1))).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

torch.save({"losses": losses}, "result.pt")
