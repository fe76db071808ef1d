# run:
"""Bags with offsets and weights, bincount, cumulative sums and segment means of a text classifier."""

import torch
from torch import nn

torch.manual_seed(0)
text = torch.tensor([1, 2, 4, 5, 4, 3], device="cuda")
offsets = torch.tensor([0, 4], device="cuda")
bag = nn.EmbeddingBag(6, 3, mode="sum").to("cuda")
weights = torch.tensor([1.0, 0.5, 1.0, 2.0, 1.0, 0.0], device="cuda")
found = bag(text, offsets, per_sample_weights=weights)
table = bag.weight.detach().cpu()
expected = torch.stack([table[1] + 0.5 * table[2] + table[4] + 2 * table[5], table[4]])
torch.testing.assert_close(found.detach().cpu(), expected)
found.sum().backward()
assert bag.weight.grad.is_cuda
assert bag.weight.grad[:, 0].tolist() == [0.0, 1.0, 0.5, 0.0, 2.0, 2.0]
counts = torch.bincount(text, minlength=6)
assert counts.is_cuda
assert counts.tolist() == [0, 1, 1, 1, 2, 1]
assert torch.cumsum(counts, 0)[-1].item() == 6
means = torch.segment_reduce(weights, "mean", lengths=torch.tensor([4, 2], device="cuda"))
assert means.tolist() == [1.125, 0.5]
