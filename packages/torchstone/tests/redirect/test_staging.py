"""Collectives that are staged through the CPU: two ranks, tensors of the test device."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent

PROGRAM = """
import datetime, threading
import torch, torch.distributed as dist
import torch._C._distributed_c10d as c10d
from torch.distributed import ReduceOp
from redirect.device import register as register_device
from torchstone.redirect.staging import NAME, StagedGroup, register

register_device()
assert register("testdev") == register("testdev") == NAME
assert dist.Backend.default_device_backend_map["testdev"] == NAME
store, failures = dist.HashStore(), []

def tensor(*values):
    return torch.tensor(values, dtype=torch.float32, device="testdev")

def check(found, *expected):
    found = torch.stack(found) if isinstance(found, list) else found
    assert found.device.type == "testdev" and found.flatten().tolist() == [*map(float, expected)], found

def work(rank):
    group = StagedGroup(store, rank, 2, datetime.timedelta(seconds=30))
    assert (group.rank(), group.size(), group.getBackendName()) == (rank, 2, NAME)
    mine = tensor(rank, 10)

    options = c10d.AllreduceOptions()
    options.reduceOp = ReduceOp.SUM
    summed = mine.clone().requires_grad_()
    assert group.allreduce([summed], options).wait()
    check(summed.detach(), 1, 20)

    options = c10d.BroadcastOptions()
    options.rootRank, options.rootTensor = 1, 0
    sent = mine.clone()
    group.broadcast([sent], options).wait()
    check(sent, 1, 10)

    gathered = [torch.zeros_like(mine) for _ in range(2)]
    group.allgather([gathered], [mine], c10d.AllgatherOptions()).wait()
    check(gathered, 0, 10, 1, 10)
    check(mine, rank, 10)
    flat = tensor(0, 0, 0, 0)
    group.all_gather_single(flat, mine, c10d.AllgatherOptions()).wait()
    check(flat, 0, 10, 1, 10)

    part = tensor(0)
    group.reduce_scatter([part], [[tensor(rank), tensor(5 + rank)]], c10d.ReduceScatterOptions()).wait()
    check(part, (1, 11)[rank])

    exchanged = [tensor(0), tensor(0)]
    group.alltoall(exchanged, [tensor(rank), tensor(rank + 2)], c10d.AllToAllOptions()).wait()
    check(exchanged, *((0, 1), (2, 3))[rank])

    if rank == 0:
        group.send([tensor(7)], 1, 3).wait()
    else:
        received = tensor(0)
        group.recv([received], 0, 3).wait()
        check(received, 7)
    group.barrier(c10d.BarrierOptions()).wait()

def guarded(rank):
    try:
        work(rank)
    except BaseException as error:
        failures.append(error)
        raise

threads = [threading.Thread(target=guarded, args=[rank]) for rank in range(2)]
for thread in threads: thread.start()
for thread in threads: thread.join(60)
assert not failures and not any(thread.is_alive() for thread in threads)
print("done")
"""


def test_two_ranks() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=HERE.parent, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "done\n"
