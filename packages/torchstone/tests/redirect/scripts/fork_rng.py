"""Random numbers that leave no trace: torch.random.fork_rng around augmentation and evaluation."""

import torch

torch.manual_seed(21)
torch.cuda.manual_seed_all(21)
before = torch.randn(2, device="cuda")
with torch.random.fork_rng(devices=[0]):
    torch.manual_seed(99)
    inside = torch.randn(2, device="cuda")
with torch.random.fork_rng(devices=range(torch.cuda.device_count()), enabled=True):
    torch.rand(5, device="cuda")
with torch.random.fork_rng(devices=[torch.device("cuda:0")], device_type="cuda"):
    torch.rand(3, device="cuda")
after = torch.randn(2, device="cuda")
seeded = torch.cuda.seed()
assert seeded is None

torch.save({"before": before, "inside": inside, "after": after}, "result.pt")
