"""A few steps under the profiler with CUDA activities and a schedule, and the autograd profiler."""

import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule

torch.manual_seed(0)
model = torch.nn.Linear(6, 6).cuda()
x = torch.randn(4, 6).cuda()
traces = []

with profile(
    activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
    schedule=schedule(wait=1, warmup=1, active=2),
    on_trace_ready=lambda p: traces.append(p.key_averages()),
    record_shapes=True,
    profile_memory=True,
) as profiler:
    for _ in range(4):
        with record_function("training_step"):
            out = model(x)
            out.sum().backward()
        torch.cuda.synchronize()
        profiler.step()

assert traces
assert any(entry.key == "training_step" for entry in traces[0])
table = traces[0].table(sort_by="cuda_time_total", row_limit=5)
assert "training_step" in table

with torch.autograd.profiler.profile(use_cuda=True) as legacy:
    y = model(x).relu()
assert len(legacy.function_events) > 0

torch.save({"out": out, "y": y, "grad": model.weight.grad}, "result.pt")
