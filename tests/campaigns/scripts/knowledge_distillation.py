# run: --devices 2
"""A teacher on one device and a student on another; soft targets cross over without gradients."""

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
teacher = nn.Linear(4, 3).to("cuda:1").eval()
student = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3)).to("cuda:0")
optimizer = torch.optim.Adam(student.parameters(), lr=0.02)
x = torch.randn(64, 4)
history = []
for _ in range(80):
    with torch.no_grad():
        soft = F.log_softmax(teacher(x.to("cuda:1")) / 2.0, -1)
    target = soft.to("cuda:0")
    assert not target.requires_grad
    assert target.device.index == 0
    loss = F.kl_div(
        F.log_softmax(student(x.to("cuda:0")) / 2.0, -1), target, reduction="batchmean", log_target=True
    )
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    history.append(loss.item())
assert history[-1] < 0.1 * history[0]
assert all(p.grad is None for p in teacher.parameters())
agreement = (student(x.cuda()).argmax(1).cpu() == teacher(x.to("cuda:1")).argmax(1).cpu()).float().mean()
assert agreement.item() > 0.85
