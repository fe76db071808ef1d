# run: --devices 2
"""DataParallel with autocast in forward, a frozen part, a cross-device metric and a saved module."""

import torch
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.frozen = nn.Linear(4, 4).requires_grad_(False)
        self.head = nn.Linear(4, 2)

    @torch.autocast("cuda", dtype=torch.bfloat16)
    def forward(self, x):
        return self.head(self.frozen(x))


net = nn.DataParallel(Net()).cuda()
x = torch.randn(7, 4).cuda()
output = net(x)
assert output.dtype is torch.bfloat16
assert output.shape == (7, 2)
assert output.get_device() == 0
output.float().sum().backward()
torch.testing.assert_close(net.module.head.bias.grad.cpu(), torch.full((2,), 7.0))
assert net.module.frozen.weight.grad is None
torch.save(net.module.state_dict(), "net.pt")
single = Net()
single.load_state_dict(torch.load("net.pt", map_location="cpu"))
torch.testing.assert_close(output.float().cpu(), single(x.cpu()).float(), rtol=3e-2, atol=3e-2)
with torch.no_grad():
    assert not net(x).requires_grad
