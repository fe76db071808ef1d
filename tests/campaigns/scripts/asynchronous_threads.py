# run: --devices 2
"""One worker thread per device with its own stream, results gathered through a queue and a pool."""

import queue
import threading
from concurrent.futures import ThreadPoolExecutor

import torch

tasks, results = queue.Queue(), queue.Queue()


def work(index):
    torch.cuda.set_device(index)
    stream = torch.cuda.Stream()
    while (task := tasks.get()) is not None:
        with torch.cuda.stream(stream), torch.no_grad():
            x = torch.full((3,), float(task), device="cuda")
            results.put((task, x.device.index == index, x.square().sum().cpu().item()))
        stream.synchronize()


threads = [threading.Thread(target=work, args=(index,)) for index in range(2)]
for thread in threads:
    thread.start()
for task in [*range(10), None, None]:
    tasks.put(task)
for thread in threads:
    thread.join()
found = sorted(results.get() for _ in range(10))
assert found == [(task, True, 3.0 * task * task) for task in range(10)]
with ThreadPoolExecutor(2) as pool:
    devices = list(pool.map(lambda i: torch.ones(1).cuda(i).device, range(2)))
assert devices == [torch.device("cuda", i) for i in range(2)]
assert torch.cuda.current_device() == 0
