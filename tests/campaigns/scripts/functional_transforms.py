# run:
"""vmap, grad, jacrev, functional_call and stacked ensembles over tensors on the device."""

import torch
from torch import nn
from torch.func import functional_call, grad, jacrev, jvp, stack_module_state, vmap

x = torch.tensor([1.0, 2.0, 3.0], device="cuda")
assert grad(lambda x: (x**3).sum())(x).tolist() == [3.0, 12.0, 27.0]
jacobian = jacrev(lambda x: x**2)(x)
assert jacobian.is_cuda
assert torch.equal(jacobian, torch.diag(2 * x))
value, tangent = jvp(torch.sin, (x,), (torch.ones(3, device="cuda"),))
torch.testing.assert_close(tangent, torch.cos(x))
torch.manual_seed(0)
models = [nn.Linear(3, 2).cuda() for _ in range(4)]
parameters, buffers = stack_module_state(models)
base = nn.Linear(3, 2).to("meta")
outputs = vmap(lambda p, b: functional_call(base, (p, b), (x,)))(parameters, buffers)
assert outputs.is_cuda
assert outputs.shape == (4, 2)
for model, output in zip(models, outputs, strict=False):
    torch.testing.assert_close(model(x), output)
data = torch.randn(5, 3, device="cuda")


def loss(parameters, sample):
    return functional_call(models[0], parameters, (sample,)).square().sum()


single = {name: p.detach() for name, p in models[0].named_parameters()}
per_sample = vmap(grad(loss), in_dims=(None, 0))(single, data)
total = sum(g for g in per_sample["weight"])
models[0](data).square().sum().backward()
torch.testing.assert_close(total, models[0].weight.grad)
