# run:
"""The older names of torch.cuda.amp: autocast as a decorator, unscale_ and clipping, custom_fwd."""

import warnings

import torch
from torch import nn

warnings.simplefilter("ignore", FutureWarning)


class Scale(torch.autograd.Function):
    @staticmethod
    @torch.cuda.amp.custom_fwd(cast_inputs=torch.float32)
    def forward(ctx, x):
        assert x.dtype is torch.float32
        assert not torch.is_autocast_enabled()
        return x * 3

    @staticmethod
    @torch.cuda.amp.custom_bwd
    def backward(ctx, grad):
        return grad * 3


@torch.cuda.amp.autocast()
def run(layer, x):
    half = layer(x)
    assert half.dtype is torch.float16
    return Scale.apply(half)


torch.manual_seed(0)
layer = nn.Linear(3, 2).cuda()
scaler = torch.cuda.amp.GradScaler(init_scale=256.0)
optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)
output = run(layer, torch.ones(5, 3).cuda())
assert output.dtype is torch.float32
scaler.scale(output.sum()).backward()
scaler.unscale_(optimizer)
torch.testing.assert_close(layer.bias.grad.cpu(), torch.tensor([15.0, 15.0]))
norm = torch.nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
assert abs(norm.item() - (8 * 15.0**2) ** 0.5) < 1e-2
total = sum(p.grad.square().sum() for p in layer.parameters()).sqrt()
assert abs(total.item() - 1.0) < 1e-4
scaler.step(optimizer)
scaler.update()
