"""amp_loop on the CPU."""

import torch
import torch.nn as nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=128.0, growth_interval=2)

losses = []
for _ in range(4):
    x = torch.randn(16, 8)
    y = x.sum(dim=1, keepdim=True)
    optimizer.zero_grad(set_to_none=True)
    with torch.amp.autocast("cpu", dtype=torch.float16):
        prediction = model(x)
        loss = nn.functional.mse_loss(prediction, y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    losses.append(loss.item())

torch.save(
    {"losses": losses, "scale": scaler.get_scale(), "model": model.state_dict(), "half": prediction},
    "result.pt",
)
