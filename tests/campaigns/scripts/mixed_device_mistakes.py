# run: --devices 2
"""Mistakes with devices that CUDA refuses must be refused, with PyTorch's words."""

import torch
from torch import nn

x, y = torch.ones(2, 2, device="cuda"), torch.ones(2, 2)
other = torch.ones(2, 2, device="cuda:1")
mistakes = {
    "two devices": (lambda: x + y, "Expected all tensors to be on the same device"),
    "two CUDA devices": (lambda: x @ other, "Expected all tensors to be on the same device"),
    "module on the CPU": (lambda: nn.Linear(2, 2)(x), "Expected all tensors to be on the same device"),
    "input on the CPU": (lambda: nn.Linear(2, 2).cuda()(y), "Expected all tensors to be on the same device"),
    "loss": (
        lambda: nn.functional.cross_entropy(x, torch.zeros(2, dtype=torch.long)),
        "Expected all tensors",
    ),
    "cat": (lambda: torch.cat([x, y]), "Expected all tensors to be on the same device"),
    "embedding": (
        lambda: nn.Embedding(3, 2).cuda()(torch.zeros(2, dtype=torch.long)),
        "Expected all tensors",
    ),
    "numpy": (lambda: x.numpy(), "can't convert cuda:0 device type tensor to numpy"),
    "index": (lambda: y[torch.zeros(1, dtype=torch.long, device="cuda")], "indices should be either on cpu"),
    "pin": (lambda: x.pin_memory(), "only dense CPU tensors can be pinned"),
    "in place": (lambda: y.add_(x), "Expected all tensors to be on the same device"),
    "gather": (lambda: x.gather(0, torch.zeros(1, 2, dtype=torch.long)), "Expected all tensors"),
    "conv": (lambda: nn.Conv2d(1, 1, 1)(torch.ones(1, 1, 2, 2, device="cuda")), "same|should be the same"),
    "batch norm": (lambda: nn.BatchNorm1d(2)(x), "Expected all tensors to be on the same device"),
    "backward": (lambda: torch.ones(2, requires_grad=True).cuda().sum().backward(torch.ones(())), None),
    "device string": (lambda: torch.zeros(1, device="cuda:-1"), "Invalid device"),
}
for name, (mistake, message) in mistakes.items():
    try:
        mistake()
    except (RuntimeError, TypeError) as error:
        assert message is not None, (name, error)
        assert any(part in str(error) for part in message.split("|")), (name, error)
    else:
        assert message is None, f"{name} was accepted"
assert (x * torch.tensor(3.0)).tolist() == [[3.0, 3.0], [3.0, 3.0]]
assert x[torch.tensor([1])].device == x.device
