# run:
"""Parameter groups, warmup, plateau and one-cycle schedules, capturable and fused optimizers."""

import torch
from torch import nn

torch.manual_seed(0)
body, head = nn.Linear(3, 3).cuda(), nn.Linear(3, 1).cuda()
x = torch.randn(8, 3, device="cuda")
for make in (
    lambda groups: torch.optim.AdamW(groups, fused=True),
    lambda groups: torch.optim.Adam(groups, capturable=True),
    lambda groups: torch.optim.NAdam(groups, foreach=True),
):
    optimizer = make([{"params": body.parameters(), "lr": 0.01}, {"params": head.parameters(), "lr": 0.1}])
    warmup = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=2)
    after = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    schedule = torch.optim.lr_scheduler.SequentialLR(optimizer, [warmup, after], milestones=[2])
    rates = []
    for _ in range(4):
        optimizer.zero_grad()
        head(body(x)).square().mean().backward()
        optimizer.step()
        rates.append([group["lr"] for group in optimizer.param_groups])
        schedule.step()
    for row, factor in zip(rates, (0.1, 0.55, 1.0, 0.5), strict=False):
        assert abs(row[0] - 0.01 * factor) < 1e-9
        assert abs(row[1] - 0.1 * factor) < 1e-9
    step = optimizer.state[head.weight]["step"]
    assert float(step) == 4
    assert optimizer.state[head.weight]["exp_avg"].is_cuda
plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.1, patience=0)
before = optimizer.param_groups[0]["lr"]
for loss in (1.0, 1.0, 1.0):
    plateau.step(torch.tensor(loss, device="cuda"))
assert optimizer.param_groups[0]["lr"] < 0.05 * before
