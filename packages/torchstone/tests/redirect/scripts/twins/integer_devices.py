"""integer_devices on the CPU."""

import torch

torch.manual_seed(0)
model = torch.nn.Linear(3, 2)
moved = torch.nn.Linear(3, 2)
x = torch.ones(2, 3)
out = model(x + x + torch.arange(6).reshape(2, 3) + torch.full((2, 3), 2.5))
torch.save(
    {
        "out": out,
        "made": torch.tensor([1.0, 2.0, 3.0]),
        "tensor": torch.tensor([[1.0, 2.0, 3.0]]),
        "moved": moved.weight,
    },
    "result.pt",
)
