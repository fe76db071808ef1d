# run:
"""A custom autograd function that saves tensors, makes new ones on the device and passes gradcheck."""

import torch


class Clipped(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, low, high):
        ctx.save_for_backward(x)
        ctx.low, ctx.high = low, high
        ctx.mark_non_differentiable(mask := (x < low) | (x > high))
        return x.clamp(low, high), mask

    @staticmethod
    def backward(ctx, grad, _):
        (x,) = ctx.saved_tensors
        assert grad.is_cuda
        assert x.is_cuda
        inside = (x >= ctx.low) & (x <= ctx.high)
        zero = torch.zeros(1, device=grad.device, dtype=grad.dtype)
        return torch.where(inside, grad, zero), None, None


x = torch.tensor([-2.0, 0.5, 3.0], dtype=torch.float64, device="cuda", requires_grad=True)
y, mask = Clipped.apply(x, -1.0, 1.0)
assert y.tolist() == [-1.0, 0.5, 1.0]
assert mask.tolist() == [True, False, True]
(y * torch.arange(1.0, 4.0, device="cuda", dtype=torch.float64)).sum().backward()
assert x.grad.tolist() == [0.0, 2.0, 0.0]
assert torch.autograd.gradcheck(lambda x: Clipped.apply(x, -1.0, 1.0)[0], x)
