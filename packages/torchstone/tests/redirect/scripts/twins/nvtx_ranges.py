"""nvtx_ranges on the CPU."""

import torch

y = torch.linspace(0, 1, 5).sin() * 2
host = y.sin() * 2
torch.save({"y": y, "z": host + 1, "host": host}, "result.pt")
