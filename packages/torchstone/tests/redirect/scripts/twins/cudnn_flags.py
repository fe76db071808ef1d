"""cudnn_flags on the CPU."""

import torch

torch.manual_seed(0)
conv = torch.nn.Conv2d(2, 3, 3)
x = torch.randn(1, 2, 5, 5).to(memory_format=torch.channels_last)
y = conv(x)
y.mean().backward()
torch.save({"y": y, "grad": conv.weight.grad}, "result.pt")
