"""data_parallel on the CPU."""

import torch
import torch.nn as nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 2))
single = nn.Linear(2, 1)
out = single(model(torch.randn(6, 5)))
out.sum().backward()
torch.save({"out": out, "grad": single.weight.grad, "state": single.state_dict()}, "result.pt")
