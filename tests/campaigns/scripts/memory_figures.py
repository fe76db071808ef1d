# run:
"""Allocated, peak and reserved bytes follow what is made and freed; statistics have CUDA's keys."""

import gc

import torch

gc.collect()
torch.cuda.empty_cache()
torch.cuda.reset_peak_memory_stats()
before = torch.cuda.memory_allocated()
x = torch.zeros(1024, 256, device="cuda")
assert torch.cuda.memory_allocated() - before == x.nbytes == 1 << 20
y = x[:512]
assert torch.cuda.memory_allocated() - before == 1 << 20
z = torch.ones(1 << 18, device="cuda")
on_host = torch.ones(1 << 18)
peak = torch.cuda.max_memory_allocated()
assert peak - before >= 2 << 20
del z
assert torch.cuda.memory_allocated() - before == 1 << 20
assert torch.cuda.max_memory_allocated() == peak
torch.cuda.reset_peak_memory_stats()
assert torch.cuda.max_memory_allocated() - before == 1 << 20
del x
assert torch.cuda.memory_allocated() - before == 1 << 20
del y
assert torch.cuda.memory_allocated() == before
stats = torch.cuda.memory_stats()
assert stats["allocated_bytes.all.current"] == before
assert stats["allocated_bytes.all.peak"] >= stats["allocated_bytes.all.current"]
assert torch.cuda.memory_reserved() >= torch.cuda.memory_allocated()
free, total = torch.cuda.mem_get_info()
assert 0 < free <= total == torch.cuda.get_device_properties(0).total_memory
assert "Allocated memory" in torch.cuda.memory_summary()
