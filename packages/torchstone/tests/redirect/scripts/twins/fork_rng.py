"""fork_rng on the CPU."""

import torch

inside = torch.randn(2, generator=torch.Generator().manual_seed(99))
torch.manual_seed(21)
before = torch.randn(2)
after = torch.randn(2)
torch.save({"before": before, "inside": inside, "after": after}, "result.pt")
