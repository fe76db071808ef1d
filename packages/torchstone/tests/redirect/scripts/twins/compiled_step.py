"""compiled_step on the CPU, without the compiler."""

import torch

torch.manual_seed(0)
linear = torch.nn.Linear(4, 4)
x = torch.randn(3, 4, requires_grad=True)
mask = torch.tril(torch.ones(4, 4, dtype=torch.bool))
out = torch.relu(linear(x)) @ torch.zeros(4, 4).masked_fill(~mask, -1.0) + torch.arange(4)
(gradient,) = torch.autograd.grad(out.sum(), x)

torch.save(
    {
        "eager": [out, gradient],
        "aot_eager": [out, gradient],
        "moved": torch.full((3,), 3.0),
    },
    "result.pt",
)
