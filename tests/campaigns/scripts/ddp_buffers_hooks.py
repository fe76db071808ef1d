# run: --devices 2 -m torch.distributed.run --standalone --nproc-per-node 2
"""A communication hook, a static graph and buffers broadcast between two ranks."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel as DDP

rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
assert dist.is_nccl_available()
assert dist.get_backend() != "nccl"
torch.manual_seed(0)
model = nn.Linear(2, 1)
model.register_buffer("scale", torch.full((1,), 1.0 + rank))
plain = nn.Linear(2, 1)
plain.load_state_dict(model.state_dict(), strict=False)
model = DDP(model.cuda(), device_ids=[rank], gradient_as_bucket_view=True, static_graph=True)
model.register_comm_hook(None, default_hooks.allreduce_hook)
assert model.module.scale.item() == 1.0
x = torch.arange(8.0).view(4, 2)
model(x[rank * 2 : rank * 2 + 2].cuda()).sum().backward()
(plain(x).sum() / 2).backward()
torch.testing.assert_close(model.module.weight.grad.cpu(), plain.weight.grad)
with torch.cuda.device(rank):
    loss = torch.tensor([float(rank)], device="cuda")
dist.all_reduce(loss, op=dist.ReduceOp.AVG if dist.get_backend() == "nccl" else dist.ReduceOp.SUM)
assert loss.item() == 1.0
del model
dist.destroy_process_group()
