"""A DistributedDataParallel launcher, as torchrun starts it, with a world of one process on NCCL."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
os.environ.setdefault("MASTER_PORT", "0")
local_rank = int(os.environ.get("LOCAL_RANK", 0))
torch.cuda.set_device(local_rank)
dist.init_process_group(
    backend="nccl",
    init_method="tcp://127.0.0.1:0",
    rank=0,
    world_size=1,
    device_id=torch.device(f"cuda:{local_rank}"),
)
assert dist.is_nccl_available()
assert dist.is_initialized()

torch.manual_seed(1)
model = torch.nn.Linear(4, 2).cuda(local_rank)
model = DDP(model, device_ids=[local_rank], output_device=local_rank)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

data = TensorDataset(torch.randn(12, 4), torch.randn(12, 2))
sampler = DistributedSampler(data, shuffle=True, seed=3)
loader = DataLoader(data, batch_size=4, sampler=sampler, pin_memory=True)

total = torch.zeros(1, device=f"cuda:{local_rank}")
for epoch in range(2):
    sampler.set_epoch(epoch)
    for x, y in loader:
        x, y = x.cuda(local_rank, non_blocking=True), y.cuda(local_rank, non_blocking=True)
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()

dist.all_reduce(total, op=dist.ReduceOp.SUM)
gathered = [torch.zeros_like(total) for _ in range(dist.get_world_size())]
dist.all_gather(gathered, total)
dist.barrier()
if dist.get_rank() == 0:
    torch.save(
        {"total": gathered[0], "model": model.module.state_dict(), "world": dist.get_world_size()},
        "result.pt",
    )
dist.destroy_process_group()
