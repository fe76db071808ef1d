# run: --devices 2
"""Copies from device to device are copies; gradients flow back through them to where they came from."""

import torch

a = torch.ones(3, device="cuda:0", requires_grad=True)
b = a.to("cuda:1")
c = (b * 2).to("cuda:0") + a
c.sum().backward()
assert a.grad.device == a.device
assert a.grad.tolist() == [3.0] * 3
with torch.no_grad():
    b.fill_(9)
assert a.tolist() == [1.0] * 3
d = torch.zeros(3, device="cuda:1")
d.copy_(c)
assert d.device.index == 1
assert d.tolist() == [3.0] * 3
before = [torch.cuda.memory_allocated(i) for i in range(2)]
e = torch.zeros(1000, device="cuda:0").to("cuda:1")
assert [torch.cuda.memory_allocated(i) - x for i, x in enumerate(before)] == [0, 4000]
s0, s1 = torch.cuda.Stream("cuda:0"), torch.cuda.Stream("cuda:1")
assert s0.device.index == 0
assert s1.device.index == 1
with torch.cuda.stream(s0), torch.cuda.stream(s1):
    assert torch.cuda.current_stream(0) == s0
    assert torch.cuda.current_stream(1) == s1
torch.cuda.synchronize(1)
