"""Overlapped copies and compute: side streams, events with timing, record_stream."""

import torch

device = torch.device("cuda:0")
copy_stream = torch.cuda.Stream(device=device, priority=-1)
compute_stream = torch.cuda.Stream()
start = torch.cuda.Event(enable_timing=True)
end = torch.cuda.Event(enable_timing=True)
copied = torch.cuda.Event()

batches = [torch.arange(4.0).pin_memory() + i for i in range(3)]
total = torch.zeros(4, device=device)

start.record()
for batch in batches:
    with torch.cuda.stream(copy_stream):
        on_device = batch.to(device, non_blocking=True)
        copied.record(copy_stream)
    compute_stream.wait_event(copied)
    with torch.cuda.stream(compute_stream):
        assert torch.cuda.current_stream() == compute_stream
        on_device.record_stream(compute_stream)
        total += on_device * 2
    torch.cuda.current_stream().wait_stream(compute_stream)
end.record()
end.synchronize()
torch.cuda.synchronize(device)
compute_stream.synchronize()

assert copy_stream.query()
assert end.query()
assert start.elapsed_time(end) >= 0.0
assert torch.cuda.current_stream() == torch.cuda.default_stream()
event = compute_stream.record_event()
event.wait(copy_stream)
assert isinstance(event, torch.cuda.Event)
assert isinstance(copy_stream, torch.cuda.Stream)

torch.save({"total": total}, "result.pt")
