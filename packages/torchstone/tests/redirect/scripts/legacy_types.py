"""Code from before torch.device: torch.cuda.FloatTensor, .type(), set_default_tensor_type, new()."""

import torch

use_cuda = torch.cuda.is_available()
FloatTensor = torch.cuda.FloatTensor if use_cuda else torch.FloatTensor
LongTensor = torch.cuda.LongTensor if use_cuda else torch.LongTensor
ByteTensor = torch.cuda.ByteTensor if use_cuda else torch.ByteTensor

values = FloatTensor([1.5, -2.0, 3.0])
sized = FloatTensor(2, 3).fill_(4)
indices = LongTensor([2, 0])
mask = ByteTensor([1, 0, 1])
assert isinstance(values, torch.cuda.FloatTensor)
assert not isinstance(values, torch.cuda.DoubleTensor)
assert isinstance(indices, torch.cuda.LongTensor)
assert values.is_cuda
assert values.device == torch.zeros(1, device="cuda").device

picked = values[indices]
masked = values.masked_select(mask.bool())
half = values.type(torch.cuda.HalfTensor)
named = torch.arange(3).type("torch.cuda.FloatTensor")
same = torch.ones(2).type_as(values)
new = values.new(2, 2).zero_()
new_full = values.new_full((2,), 7)
assert half.is_cuda
assert named.is_cuda
assert same.is_cuda
assert new.is_cuda
assert new_full.is_cuda

weight = torch.nn.Parameter(torch.ones(2))
optimizer = torch.optim.SGD([weight], lr=0.5)
weight.data = weight.data.cuda()
(weight * picked).sum().backward()
optimizer.step()
assert weight.is_cuda

torch.set_default_tensor_type("torch.cuda.FloatTensor")
defaulted = torch.zeros(2, 2) + 1
assert defaulted.is_cuda
torch.set_default_tensor_type(torch.FloatTensor)
assert torch.zeros(1).device.type == "cpu"

torch.save(
    {
        "values": values,
        "sized": sized,
        "picked": picked,
        "masked": masked,
        "half": half,
        "named": named,
        "same": same,
        "new": new,
        "new_full": new_full,
        "weight": weight,
        "defaulted": defaulted,
    },
    "result.pt",
)
