# run: --devices 3
"""DataParallel with nested inputs and outputs, fewer rows than devices, and chosen device_ids."""

import torch
from torch import nn

replicas = []


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(2.0))

    def forward(self, batch, factor=1.0, *, offset=None):
        replicas.append(torch.cuda.current_device())
        x, y = batch["x"], batch["y"]
        return {"sum": (x + y) * self.weight * factor, "device": [x.new_full((1,), x.get_device())]}


batch = {"x": torch.arange(6.0).cuda(), "y": torch.ones(6).cuda()}
found = nn.DataParallel(Pair().cuda())(batch, factor=3.0)
assert found["sum"].tolist() == [6.0, 12.0, 18.0, 24.0, 30.0, 36.0]
assert found["device"][0].tolist() == [0.0, 1.0, 2.0]
assert sorted(replicas) == [0, 1, 2]

replicas.clear()
small = {name: value[:2] for name, value in batch.items()}
assert nn.DataParallel(Pair().cuda())(small)["sum"].tolist() == [2.0, 4.0]
assert sorted(replicas) == [0, 1]

replicas.clear()
model = nn.DataParallel(Pair().cuda(1), device_ids=[1, 2], output_device=2)
found = model({name: value.to("cuda:1") for name, value in batch.items()})
assert found["sum"].device == torch.device("cuda", 2)
assert sorted(replicas) == [1, 2]

wrong = nn.DataParallel(Pair().cuda(1), device_ids=[0, 1])
try:
    wrong(batch)
except RuntimeError as error:
    assert "must have its parameters and buffers on device cuda:0" in str(error)
else:
    raise AssertionError("a module on another device was accepted")
