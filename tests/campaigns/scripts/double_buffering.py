# run:
"""Reused device buffers: copy_ into views, out= arguments, in-place updates and aliasing on the device."""

import torch

buffers = [torch.empty(4, device="cuda") for _ in range(2)]
out = torch.empty(4, device="cuda")
total = torch.zeros((), device="cuda")
for step in range(6):
    buffer = buffers[step % 2]
    buffer.copy_(torch.full((4,), float(step)), non_blocking=True)
    torch.mul(buffer, 2, out=out)
    total += out.sum()
assert total.item() == 2 * 4 * sum(range(6))
grid = torch.zeros(3, 3, device="cuda")
row = grid[1]
row += 1
grid[:, 2].fill_(7)
grid[0, 0] = torch.tensor(5.0)
assert grid.tolist() == [[5, 0, 7], [1, 1, 7], [0, 0, 7]]
assert row.data_ptr() == grid[1].data_ptr()
assert row.untyped_storage().nbytes() == 36
flat = grid.view(-1)
flat.zero_()
assert grid.abs().sum().item() == 0
host = torch.empty(3, 3, pin_memory=True)
host.copy_(grid + 1)
grid.fill_(9)
assert host.sum().item() == 9.0
x = torch.arange(6, device="cuda").view(2, 3)
x.t_()
assert x.stride() == (1, 3)
assert x.contiguous().view(-1).tolist() == [0, 3, 1, 4, 2, 5]
