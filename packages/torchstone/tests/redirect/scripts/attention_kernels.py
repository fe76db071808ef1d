"""Attention with kernels selected by context managers, old and new, and a head with flags."""

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

torch.manual_seed(0)
q, k, v = (torch.randn(1, 2, 4, 8, device="cuda", requires_grad=True) for _ in range(3))
mask = torch.tril(torch.ones(4, 4, dtype=torch.bool, device="cuda"))

outs = {"plain": F.scaled_dot_product_attention(q, k, v)}
with torch.backends.cuda.sdp_kernel(enable_flash=False, enable_math=True, enable_mem_efficient=False):
    outs["math"] = F.scaled_dot_product_attention(q, k, v, is_causal=True)
with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]):
    outs["new"] = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
torch.backends.cuda.enable_flash_sdp(True)
torch.backends.cuda.enable_mem_efficient_sdp(False)
assert not torch.backends.cuda.mem_efficient_sdp_enabled()
torch.backends.cuda.enable_mem_efficient_sdp(True)
assert torch.backends.cuda.flash_sdp_enabled()
assert torch.backends.cuda.math_sdp_enabled()

layer = torch.nn.MultiheadAttention(8, 2, batch_first=True, device="cuda")
outs["layer"], _ = layer(q[0], k[0], v[0], need_weights=False)
sum(out.square().sum() for out in outs.values()).backward()
torch.save({"outs": outs, "q": q.grad, "weight": layer.in_proj_weight.grad}, "result.pt")
