# run:
"""Models in float16 and bfloat16, master weights in float32, and dtype checks."""

import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).cuda().half()
x = torch.randn(3, 4).cuda().half()
output = net(x)
assert output.dtype is torch.float16
assert output.is_cuda
reference = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
reference.load_state_dict({name: value.float().cpu() for name, value in net.state_dict().items()})
torch.testing.assert_close(output.float().cpu(), reference(x.float().cpu()), rtol=1e-2, atol=1e-2)
master = [p.detach().clone().float().requires_grad_() for p in net.parameters()]
assert all(p.is_cuda and p.dtype is torch.float32 for p in master)
optimizer = torch.optim.SGD(master, lr=0.1)
first = None
for _ in range(20):
    loss = net(x).float().square().mean()
    first = first if first is not None else loss.item()
    net.zero_grad()
    (loss * 128).backward()
    for p, m in zip(net.parameters(), master, strict=False):
        assert p.grad.dtype is torch.float16
        m.grad = p.grad.float() / 128
    optimizer.step()
    with torch.no_grad():
        for p, m in zip(net.parameters(), master, strict=False):
            p.copy_(m)
assert loss.item() < 0.6 * first
assert torch.cuda.is_bf16_supported()
assert net.bfloat16()(x.bfloat16()).dtype is torch.bfloat16
old = torch.cuda.HalfTensor(2, 2).fill_(1)
assert old.dtype is torch.float16
assert old.is_cuda
assert old.type() == "torch.cuda.HalfTensor"
