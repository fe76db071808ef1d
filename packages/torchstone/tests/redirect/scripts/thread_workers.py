"""Threads that use the GPU: a prefetching thread and a pool of evaluators."""

import queue
import threading
from concurrent.futures import ThreadPoolExecutor

import torch

torch.manual_seed(0)
model = torch.nn.Linear(4, 2).cuda()
batches: queue.Queue = queue.Queue(maxsize=2)


def prefetch() -> None:
    torch.cuda.set_device(0)
    stream = torch.cuda.Stream()
    for i in range(4):
        with torch.cuda.stream(stream):
            batch = torch.full((2, 4), float(i)).pin_memory().to("cuda", non_blocking=True)
        stream.synchronize()
        assert batch.is_cuda
        batches.put(batch)
    batches.put(None)


thread = threading.Thread(target=prefetch, daemon=True)
thread.start()
outs = []
while (batch := batches.get(timeout=60)) is not None:
    with torch.no_grad():
        outs.append(model(batch))
thread.join()


def evaluate(i: int):
    assert torch.cuda.is_available()
    with torch.no_grad(), torch.autocast("cuda", dtype=torch.bfloat16):
        return model(torch.ones(1, 4, device="cuda") * i)


with ThreadPoolExecutor(2) as pool:
    evaluated = list(pool.map(evaluate, range(4)))
assert all(t.is_cuda and t.dtype == torch.bfloat16 for t in evaluated)

torch.save({"outs": torch.stack(outs), "evaluated": torch.cat(evaluated)}, "result.pt")
