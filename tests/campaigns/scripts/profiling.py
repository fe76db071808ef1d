# run:
"""The profiler with CUDA activities: operators are counted, a schedule calls back, a trace is written."""

import json

import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule

x = torch.randn(8, 8, device="cuda")
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True) as prof:
    with record_function("my_block"):
        (x @ x).relu().sum()
    torch.cuda.synchronize()
counts = {one.key: one.count for one in prof.key_averages()}
assert counts["my_block"] == 1
assert counts["aten::mm"] == 1
assert counts["aten::relu"] == 1
assert "my_block" in prof.key_averages().table(sort_by="cuda_time_total", row_limit=5)
prof.export_chrome_trace("trace.json")
with open("trace.json") as file:
    assert any(event.get("name") == "my_block" for event in json.load(file)["traceEvents"])
ready = []
with profile(schedule=schedule(wait=1, warmup=1, active=2), on_trace_ready=ready.append) as prof:
    for _ in range(4):
        x.sum()
        prof.step()
assert len(ready) == 1
torch.cuda.nvtx.range_push("epoch")
torch.cuda.nvtx.mark("here")
torch.cuda.nvtx.range_pop()
with torch.autograd.profiler.profile(use_device="cuda") as old:
    x.cos()
assert any("cos" in one.key for one in old.key_averages())
