# run in a process: --devices 2
"""DistributedDataParallel with nccl in processes that torch.multiprocessing.spawn starts."""

import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def train(rank, world_size, folder):
    os.environ.setdefault("MASTER_ADDR", "localhost")
    dist.init_process_group("nccl", init_method=f"file://{folder}/store", rank=rank, world_size=world_size)
    torch.cuda.set_device(rank)
    torch.manual_seed(7)
    model = DDP(nn.Linear(3, 2).cuda(), device_ids=[rank])
    x = torch.arange(12.0).view(4, 3)[rank * 2 : rank * 2 + 2].cuda(rank)
    assert x.device == model.module.weight.device == torch.device("cuda", rank)
    with model.no_sync():
        model(x).sum().backward()
    local = model.module.weight.grad.clone()
    model.zero_grad()
    model(x).sum().backward()
    mean = local.clone()
    dist.all_reduce(mean, op=dist.ReduceOp.SUM)
    torch.testing.assert_close(model.module.weight.grad, mean / world_size)
    if rank == 0:
        torch.save(model.state_dict(), f"{folder}/model.pt")
    dist.barrier()
    state = torch.load(f"{folder}/model.pt", map_location={"cuda:0": f"cuda:{rank}"})
    assert state["module.weight"].device == torch.device("cuda", rank)
    torch.save(model.module.weight.grad.cpu(), f"{folder}/grad{rank}.pt")
    del model
    dist.destroy_process_group()


if __name__ == "__main__":
    world_size = torch.cuda.device_count()
    assert world_size == 2
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(train, args=(world_size, folder), nprocs=world_size, join=True)
        torch.manual_seed(7)
        model = nn.Linear(3, 2)
        (model(torch.arange(12.0).view(4, 3)).sum() / 2).backward()
        for rank in range(world_size):
            torch.testing.assert_close(torch.load(f"{folder}/grad{rank}.pt"), model.weight.grad)
