"""Ranges and marks for a timeline profiler, in the three ways they are written."""

import torch
import torch.cuda.nvtx as nvtx
from torch.cuda import nvtx as nvtx_again


@nvtx_again.range("forward")
def forward(x):
    return x.sin() * 2


x = torch.linspace(0, 1, 5).cuda()
torch.cuda.nvtx.range_push("step 0")
y = forward(x)
nvtx.mark("forward is done")
torch.cuda.nvtx.range_pop()
with nvtx.range("step {}", 1):
    z = forward(y)
handle = nvtx.range_start("copy")
host = z.cpu()
nvtx.range_end(handle)
with torch.autograd.profiler.emit_nvtx(enabled=False):
    z = z + 1

torch.save({"y": y, "z": z, "host": host}, "result.pt")
