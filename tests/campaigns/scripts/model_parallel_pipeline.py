# run: --devices 2
"""A model whose halves are on two devices, trained with micro-batches."""

import torch
from torch import nn

torch.manual_seed(3)


class Split(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Linear(8, 16), nn.Tanh()).to("cuda:0")
        self.second = nn.Linear(16, 2).to("cuda:1")

    def forward(self, x):
        outputs = []
        waiting = None
        for part in x.split(4):
            if waiting is not None:
                outputs.append(self.second(waiting))
            waiting = self.first(part.to("cuda:0")).to("cuda:1", non_blocking=True)
        outputs.append(self.second(waiting))
        return torch.cat(outputs)


model = Split()
x, y = torch.randn(12, 8), torch.randint(0, 2, (12,))
reference = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2))
values = [p.detach().cpu() for p in model.parameters()]
with torch.no_grad():
    for parameter, value in zip(reference.parameters(), values, strict=False):
        parameter.copy_(value)
ours = torch.optim.Adam(model.parameters(), lr=0.01)
theirs = torch.optim.Adam(reference.parameters(), lr=0.01)
for _ in range(4):
    ours.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y.to("cuda:1"))
    loss.backward()
    ours.step()
    theirs.zero_grad()
    expected = nn.functional.cross_entropy(reference(x), y)
    expected.backward()
    theirs.step()
    assert abs(loss.item() - expected.item()) < 1e-5
assert {p.device.index for p in model.first.parameters()} == {0}
assert {p.grad.device.index for p in model.second.parameters()} == {1}
try:
    model.second(model.first(x.cuda()))
except RuntimeError as error:
    assert "Expected all tensors to be on the same device" in str(error)
else:
    raise AssertionError("tensors of two devices were mixed")
