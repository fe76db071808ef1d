"""ddp_one_process on the CPU: a world of one is plain training."""

import torch
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

torch.manual_seed(1)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
data = TensorDataset(torch.randn(12, 4), torch.randn(12, 2))
sampler = DistributedSampler(data, num_replicas=1, rank=0, shuffle=True, seed=3)
loader = DataLoader(data, batch_size=4, sampler=sampler)

total = torch.zeros(1)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for x, y in loader:
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()

torch.save({"total": total, "model": model.state_dict(), "world": 1}, "result.pt")
