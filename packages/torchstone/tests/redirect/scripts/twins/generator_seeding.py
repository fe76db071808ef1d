"""generator_seeding on the CPU."""

import torch

torch.manual_seed(11)
first = torch.randn(3)
second = torch.rand(3)

generator = torch.Generator().manual_seed(5)
noise = torch.randn(2, 2, generator=generator)
order = torch.randperm(6, generator=generator)
bits = torch.bernoulli(torch.full((4,), 0.5), generator=generator)
filled = torch.empty(3).normal_(generator=generator)

torch.save(
    {
        "draws": [first, second, second],
        "noise": noise,
        "orders": [order, order],
        "bits": bits,
        "filled": filled,
        "host": torch.randn(2, 2, generator=torch.Generator().manual_seed(5)),
    },
    "result.pt",
)
