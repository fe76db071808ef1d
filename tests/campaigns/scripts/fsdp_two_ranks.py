# run: --devices 2 -m torch.distributed.run --nproc-per-node 2 --standalone
"""fully_shard on two ranks trains as one process does."""

import copy
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor

rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
mesh = init_device_mesh("cuda", (2,))
torch.manual_seed(0)
reference = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))
model = copy.deepcopy(reference).cuda()
for layer in (model[0], model[2]):
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
assert isinstance(model, FSDPModule)
assert all(isinstance(p, DTensor) for p in model.parameters())
assert model[0].weight.to_local().shape == (8, 8)
assert model[0].weight.to_local().device == torch.device("cuda", rank)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
plain = torch.optim.AdamW(reference.parameters(), lr=0.01)
x, y = torch.randn(8, 8), torch.randn(8, 4)
for _ in range(3):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x[rank::2].cuda()), y[rank::2].cuda())
    loss.backward()
    optimizer.step()
    plain.zero_grad()
    nn.functional.mse_loss(reference(x), y).backward()
    plain.step()
for ours, theirs in zip(model.parameters(), reference.parameters(), strict=False):
    torch.testing.assert_close(ours.full_tensor().cpu(), theirs.detach())
dist.destroy_process_group()
