"""capability_gates on the CPU."""

import torch

q = torch.linspace(-1, 1, 8).reshape(1, 1, 2, 4)
attention = torch.softmax(q @ q.transpose(-1, -2), dim=-1) @ q
torch.save({"attention": attention, "dtype": "torch.bfloat16"}, "result.pt")
