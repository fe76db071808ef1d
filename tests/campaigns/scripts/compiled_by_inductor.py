# run in a process:
"""torch.compile with its default backend, and with each mode."""

import torch

torch.manual_seed(0)


def f(x, y):
    return torch.softmax(x @ y, -1).sum(0) + torch.arange(x.shape[0], device=x.device)


x, y = torch.randn(6, 6), torch.randn(6, 6)
expected = f(x, y)
for options in ({}, {"mode": "reduce-overhead"}):
    torch.compiler.reset()
    compiled = torch.compile(f, **options)
    found = compiled(x.cuda(), y.cuda())
    assert found.is_cuda
    torch.testing.assert_close(found.cpu(), expected)
