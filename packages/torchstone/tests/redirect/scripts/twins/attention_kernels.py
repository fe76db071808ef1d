"""attention_kernels on the CPU."""

import torch
import torch.nn.functional as F

torch.manual_seed(0)
q, k, v = (torch.randn(1, 2, 4, 8, requires_grad=True) for _ in range(3))
mask = torch.tril(torch.ones(4, 4, dtype=torch.bool))
outs = {
    "plain": F.scaled_dot_product_attention(q, k, v),
    "math": F.scaled_dot_product_attention(q, k, v, is_causal=True),
    "new": F.scaled_dot_product_attention(q, k, v, attn_mask=mask),
}
layer = torch.nn.MultiheadAttention(8, 2, batch_first=True)
outs["layer"], _ = layer(q[0], k[0], v[0], need_weights=False)
sum(out.square().sum() for out in outs.values()).backward()
torch.save({"outs": outs, "q": q.grad, "weight": layer.in_proj_weight.grad}, "result.pt")
