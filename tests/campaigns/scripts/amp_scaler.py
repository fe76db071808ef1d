# run:
"""Mixed precision with GradScaler: an overflow skips a step and halves the scale."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(4, 4).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda", init_scale=1024.0, growth_interval=2)
x = torch.randn(8, 4, device="cuda")
scales = []
for step in range(4):
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        output = model(x)
        assert output.dtype is torch.float16
        loss = output.float().square().mean()
    before = model.weight.detach().clone()
    scaler.scale(loss).backward()
    if step == 1:
        model.weight.grad[0, 0] = float("inf")
    scaler.step(optimizer)
    scaler.update()
    scales.append(scaler.get_scale())
    assert torch.equal(before, model.weight) == (step == 1)
assert scales == [1024.0, 512.0, 512.0, 1024.0]
assert scaler.state_dict()["scale"] == 1024.0
