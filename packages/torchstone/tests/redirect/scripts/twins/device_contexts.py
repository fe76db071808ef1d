"""device_contexts on the CPU."""

import torch

layer = torch.full((2, 4), 0.5)
result = layer @ torch.arange(4.0) + torch.tensor([2.0, 2.0])
torch.save(
    {
        "result": result,
        "inner": torch.ones(2),
        "d": torch.tensor([0.0, 0.5, 1.0]),
        "explicit": torch.zeros(2),
    },
    "result.pt",
)
