"""accelerate_style on the CPU."""

import torch

torch.manual_seed(9)
model = torch.nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
metrics = []
for _ in range(3):
    x = torch.randn(6, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(x).float().pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    metrics.append(loss.detach())

torch.save({"metrics": torch.stack(metrics), "model": model.state_dict()}, "result.pt")
