# run:
"""Scaled dot product attention under chosen kernels, and a transformer layer with masks."""

import math

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

torch.manual_seed(0)
q, k, v = (torch.randn(2, 2, 5, 4) for _ in range(3))
causal = torch.ones(5, 5, dtype=torch.bool).tril()
scores = (q @ k.transpose(-2, -1) / math.sqrt(4)).masked_fill(~causal, -torch.inf)
expected = scores.softmax(-1) @ v
for kernels in (SDPBackend.MATH, [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]):
    with sdpa_kernel(kernels):
        found = nn.functional.scaled_dot_product_attention(q.cuda(), k.cuda(), v.cuda(), is_causal=True)
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=1e-5)
masked = nn.functional.scaled_dot_product_attention(q.cuda(), k.cuda(), v.cuda(), attn_mask=causal.cuda())
torch.testing.assert_close(masked.cpu(), expected, rtol=1e-4, atol=1e-5)
assert isinstance(torch.backends.cuda.flash_sdp_enabled(), bool)
layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True).cuda()
x = torch.randn(2, 5, 8)
padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
one = layer(x.cuda(), src_key_padding_mask=padding.cuda())
x[1, 3:] = 100.0
two = layer(x.cuda(), src_key_padding_mask=padding.cuda())
torch.testing.assert_close(one[1, :3], two[1, :3], rtol=1e-4, atol=1e-4)
