# run:
"""Events around work give times; without timing or before recording they refuse."""

import torch

start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
x = torch.randn(300, 300, device="cuda")
start.record()
for _ in range(20):
    x = torch.tanh(x @ x)
end.record()
torch.cuda.synchronize()
assert start.query()
assert end.query()
assert start.elapsed_time(end) > 0.0
times = []
for _ in range(3):
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record(torch.cuda.current_stream())
    x.sum()
    last.record()
    last.synchronize()
    times.append(first.elapsed_time(last))
assert all(one >= 0 for one in times)
silent = torch.cuda.Event()
silent.record()
for wrong in (
    lambda: silent.elapsed_time(end),
    lambda: torch.cuda.Event(enable_timing=True).elapsed_time(end),
):
    try:
        wrong()
    except (RuntimeError, ValueError):
        pass
    else:
        raise AssertionError("a time was made up")
