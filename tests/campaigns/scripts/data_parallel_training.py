# run: --devices 2
"""DataParallel splits a batch over two devices and trains as one device does."""

import copy

import torch
from torch import nn

torch.manual_seed(0)
seen = set()


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 6)
        self.register_buffer("scale", torch.full((6,), 0.5))

    def forward(self, x):
        seen.add((x.device.index, self.fc.weight.device.index, self.scale.device.index, len(x)))
        return torch.relu(self.fc(x)) * self.scale


reference = nn.Sequential(Block(), nn.Linear(6, 1))
x, y = torch.randn(10, 6), torch.randn(10, 1)
model = nn.DataParallel(copy.deepcopy(reference).cuda())
assert model.device_ids == [0, 1]
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for _ in range(5):
    optimizer.zero_grad()
    output = model(x.cuda())
    assert output.device == torch.device("cuda:0")
    nn.functional.mse_loss(output, y.cuda()).backward()
    optimizer.step()
assert seen == {(0, 0, 0, 5), (1, 1, 1, 5)}

plain = torch.optim.SGD(reference.parameters(), lr=0.1, momentum=0.9)
for _ in range(5):
    plain.zero_grad()
    nn.functional.mse_loss(reference(x), y).backward()
    plain.step()
for ours, theirs in zip(model.module.parameters(), reference.parameters(), strict=False):
    torch.testing.assert_close(ours.detach().cpu(), theirs.detach())
assert set(model.state_dict()) == {f"module.{name}" for name in reference.state_dict()}
