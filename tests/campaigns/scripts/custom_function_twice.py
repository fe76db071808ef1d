# run:
"""Double backward through a custom function, setup_context, and a hook that changes a gradient."""

import torch


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x**3

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * 3 * x * x


x = torch.tensor([1.0, 2.0], device="cuda", requires_grad=True)
(first,) = torch.autograd.grad(Cube.apply(x).sum(), x, create_graph=True)
assert first.tolist() == [3.0, 12.0]
assert first.is_cuda
(second,) = torch.autograd.grad(first.sum(), x)
assert second.tolist() == [6.0, 12.0]
x.register_hook(lambda grad: grad.clamp(max=torch.tensor(5.0, device=grad.device)))
Cube.apply(x).sum().backward()
assert x.grad.tolist() == [3.0, 5.0]
