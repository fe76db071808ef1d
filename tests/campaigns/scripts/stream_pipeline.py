# run:
"""Copies on a side stream, work on the current one, ordered by events and wait_stream."""

import torch

copier = torch.cuda.Stream()
batches = [torch.full((4,), float(i)).pin_memory() for i in range(5)]
assert copier != torch.cuda.current_stream()


def load(batch):
    with torch.cuda.stream(copier):
        assert torch.cuda.current_stream() == copier
        moved = batch.to("cuda", non_blocking=True)
        done = copier.record_event()
    return moved, done


results = []
waiting = load(batches[0])
for following in [*batches[1:], None]:
    moved, done = waiting
    torch.cuda.current_stream().wait_event(done)
    if following is not None:
        waiting = load(following)
    moved.record_stream(torch.cuda.current_stream())
    results.append((moved * 2).sum())
torch.cuda.current_stream().wait_stream(copier)
copier.synchronize()
assert copier.query()
assert done.query()
assert torch.stack(results).tolist() == [0.0, 8.0, 16.0, 24.0, 32.0]
low, high = torch.cuda.Stream.priority_range()
assert torch.cuda.Stream(priority=high).priority == high
assert low >= high
