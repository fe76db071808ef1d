# run:
"""Moving modules keeps parameters' identity, ties and buffers; the optimizer made before goes on."""

import copy

import torch
from torch import nn

torch.manual_seed(0)
model = nn.ModuleDict({"embed": nn.Embedding(5, 4), "out": nn.Linear(4, 5, bias=False)})
model["out"].weight = model["embed"].weight
model.register_buffer("steps", torch.zeros(1), persistent=False)
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
parameter = model["embed"].weight
before = parameter.detach().clone()
model.cuda()
assert model["embed"].weight is parameter is model["out"].weight
assert parameter.is_cuda
assert model.steps.is_cuda
assert not before.is_cuda
model["out"](model["embed"](torch.tensor([1], device="cuda"))).sum().backward()
optimizer.step()
assert not torch.equal(parameter.cpu(), before)
clone = copy.deepcopy(model)
assert clone["embed"].weight.is_cuda
assert clone["embed"].weight is clone["out"].weight
model.cpu()
assert parameter.device.type == "cpu"
assert clone["embed"].weight.is_cuda
assert torch.equal(parameter, clone["embed"].weight.cpu())
model.to("cuda", torch.float64)
assert parameter.dtype is torch.float64
assert parameter.is_cuda
data = torch.ones(2)
data.data = data.data.cuda()
assert data.is_cuda
model.requires_grad_(False).half()
assert {p.dtype for p in model.parameters()} == {torch.float16}
