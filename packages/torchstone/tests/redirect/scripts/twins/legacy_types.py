"""legacy_types on the CPU."""

import torch

values = torch.tensor([1.5, -2.0, 3.0])
torch.save(
    {
        "values": values,
        "sized": torch.full((2, 3), 4.0),
        "picked": torch.tensor([3.0, 1.5]),
        "masked": torch.tensor([1.5, 3.0]),
        "half": values.half(),
        "named": torch.tensor([0.0, 1.0, 2.0]),
        "same": torch.ones(2),
        "new": torch.zeros(2, 2),
        "new_full": torch.tensor([7.0, 7.0]),
        "weight": torch.nn.Parameter(torch.tensor([-0.5, 0.25])),
        "defaulted": torch.ones(2, 2),
    },
    "result.pt",
)
