"""Mixed-precision training, as the CUDA tutorials had it for years: torch.cuda.amp and its GradScaler."""

import argparse

import torch
import torch.nn as nn
from torch.cuda.amp import GradScaler, autocast

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=4)
parser.add_argument("--lr", type=float, default=0.1)
args = parser.parse_args()

torch.manual_seed(0)
torch.cuda.manual_seed_all(0)

model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
criterion = nn.MSELoss().cuda()
scaler = GradScaler(init_scale=128.0, growth_interval=2)

losses = []
for step in range(args.steps):
    x = torch.randn(16, 8).cuda(non_blocking=True)
    y = x.sum(dim=1, keepdim=True)
    optimizer.zero_grad(set_to_none=True)
    with autocast():
        prediction = model(x)
        loss = criterion(prediction, y)
    assert prediction.dtype == torch.float16
    assert prediction.is_cuda
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    losses.append(loss.item())
    print(f"step {step} loss {loss.item():.4f} scale {scaler.get_scale()}")

torch.save(
    {"losses": losses, "scale": scaler.get_scale(), "model": model.state_dict(), "half": prediction},
    "result.pt",
)
