# run:
"""A closure-based optimizer, parameters made straight on the device, and vector conversion."""

import torch
from torch.nn.utils import parameters_to_vector, vector_to_parameters

w = torch.zeros(2, 1, device="cuda", requires_grad=True)
b = torch.nn.Parameter(torch.zeros(1, device="cuda"))
x = torch.tensor([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0], [2.0, 1.0]], device="cuda")
y = x @ torch.tensor([[2.0], [-1.0]], device="cuda") + 0.5
optimizer = torch.optim.LBFGS([w, b], max_iter=50, line_search_fn="strong_wolfe")


def closure():
    optimizer.zero_grad()
    loss = (x @ w + b - y).square().sum()
    loss.backward()
    return loss


optimizer.step(closure)
torch.testing.assert_close(w.detach().cpu(), torch.tensor([[2.0], [-1.0]]), rtol=1e-3, atol=1e-3)
vector = parameters_to_vector([w, b])
assert vector.is_cuda
assert vector.shape == (3,)
vector_to_parameters(torch.arange(3.0, device="cuda"), [w, b])
assert w.tolist() == [[0.0], [1.0]]
assert b.tolist() == [2.0]
try:
    parameters_to_vector([w, torch.zeros(1)])
except (TypeError, RuntimeError) as error:
    assert "different devices" in str(error) or "same device" in str(error)
else:
    raise AssertionError("parameters of two devices became one vector")
