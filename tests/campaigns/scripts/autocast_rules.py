# run:
"""What autocast casts on CUDA: products to half, reductions and losses to float32, nesting, caching."""

import torch
import torch.nn.functional as F

a, b = torch.randn(4, 4, device="cuda"), torch.randn(4, 4, device="cuda")
with torch.autocast(device_type="cuda", dtype=torch.bfloat16):
    assert torch.is_autocast_enabled("cuda")
    assert torch.get_autocast_dtype("cuda") is torch.bfloat16
    c = a @ b
    assert c.dtype is torch.bfloat16
    assert F.linear(a, b).dtype is torch.bfloat16
    assert (c + 1).dtype is torch.bfloat16
    assert F.mse_loss(c, b.bfloat16()).dtype is torch.float32
    with torch.autocast("cuda", enabled=False):
        assert (a @ b).dtype is torch.float32
assert not torch.is_autocast_enabled("cuda")
torch.testing.assert_close(c.cpu(), a.cpu().bfloat16() @ b.cpu().bfloat16())
x = torch.randn(2, 4)
assert (x @ torch.randn(4, 2)).dtype is torch.float32
