"""trainer_style on the CPU."""

import torch
from torch import nn

torch.manual_seed(42)
model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scaler = torch.amp.GradScaler("cpu")
history = []
for _ in range(3):
    x = torch.randn(2, 4)
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(x), torch.tensor([0, 1]))
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    history.append(loss.detach().float().item())

torch.save({"history": history, "model": model.state_dict()}, "result.pt")
