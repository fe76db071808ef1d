# run:
"""Hooks of modules see the device; a model built on meta is materialized with to_empty."""

import torch
from torch import nn

seen = {}


def note(name, value):
    seen[name] = value


model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)).cuda()
handles = [
    model[0].register_forward_hook(lambda module, args, output: note("forward", output.device)),
    model[0].register_forward_pre_hook(lambda module, args: (args[0].to(module.weight.device),)),
    model[2].register_full_backward_hook(
        lambda module, grads, outputs: note("backward", [g.device for g in (*grads, *outputs)])
    ),
    model[0].weight.register_post_accumulate_grad_hook(lambda p: note("grad", p.grad.device)),
]
model(torch.ones(4, 2)).sum().backward()
cuda = torch.device("cuda:0")
assert seen == {"forward": cuda, "backward": [cuda, cuda], "grad": cuda}
for handle in handles:
    handle.remove()
with torch.device("meta"):
    lazy = nn.Linear(2, 2)
assert lazy.weight.is_meta
lazy = lazy.to_empty(device="cuda")
lazy.reset_parameters()
assert lazy.weight.is_cuda
assert lazy(torch.ones(1, 2, device="cuda")).isfinite().all()
features = {}
with torch.no_grad():
    model[1].register_forward_hook(lambda m, i, o: features.update(relu=o.cpu().numpy()))
    model(torch.ones(1, 2, device="cuda"))
assert features["relu"].shape == (1, 3)
lazily = nn.Sequential(nn.LazyLinear(4)).cuda()
assert lazily(torch.ones(2, 7, device="cuda")).device == cuda
assert lazily[0].weight.shape == (4, 7)
