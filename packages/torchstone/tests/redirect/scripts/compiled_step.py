"""torch.compile on top: a full graph over a function that makes tensors on the GPU itself."""

import torch

torch.manual_seed(0)
device = "cuda"


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        mask = torch.tril(torch.ones(4, 4, device="cuda", dtype=torch.bool))
        bias = torch.zeros(4, 4, device=x.device).masked_fill(~mask, -1.0)
        return torch.relu(self.linear(x)) @ bias + torch.arange(4, device=device)


model = Block().cuda()
x = torch.randn(3, 4, device=device, requires_grad=True)
results = {}
for backend in ("eager", "aot_eager"):
    torch._dynamo.reset()
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    out = compiled(x)
    (gradient,) = torch.autograd.grad(out.sum(), x)
    assert out.is_cuda
    assert gradient.is_cuda
    results[backend] = [out, gradient]


@torch.compile(backend="eager", fullgraph=True)
def moved(t):
    return t.cuda() * 2 + t.to("cuda:0")


results["moved"] = moved(torch.ones(3))
torch.save(results, "result.pt")
