# run: --devices 2 -m torch.distributed.run --nproc-per-node 2 --standalone
"""parallelize_module shards an MLP over two devices: column-wise, then row-wise."""

import copy
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(6, 12), nn.Linear(12, 6)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


device_type = torch.accelerator.current_accelerator().type
assert device_type == "cuda"
mesh = init_device_mesh(device_type, (int(os.environ["WORLD_SIZE"]),))
rank = mesh.get_rank()
assert mesh.device_type == "cuda"
torch.manual_seed(0)
reference = MLP()
model = copy.deepcopy(reference).to(device_type)
model = parallelize_module(model, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
assert isinstance(model.up.weight, DTensor)
assert model.up.weight.placements == (Shard(0),)
assert model.up.weight.to_local().shape == (6, 6)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, foreach=True)
plain = torch.optim.AdamW(reference.parameters(), lr=0.1, foreach=True)
for step in range(3):
    torch.manual_seed(step)
    x = torch.rand(4, 6, device=device_type)
    optimizer.zero_grad()
    output = model(x)
    assert output.is_cuda
    output.sum().backward()
    optimizer.step()
    plain.zero_grad()
    expected = reference(x.cpu())
    torch.testing.assert_close(output.detach().cpu(), expected.detach())
    expected.sum().backward()
    plain.step()
for ours, theirs in zip(model.parameters(), reference.parameters(), strict=False):
    torch.testing.assert_close(ours.full_tensor().detach().cpu(), theirs.detach())

big = torch.arange(8.0).view(4, 2)
sharded = distribute_tensor(big.cuda(), mesh, [Shard(0)])
assert sharded.to_local().tolist() == big.chunk(2)[rank].tolist()
assert (
    sharded @ distribute_tensor(torch.eye(2).cuda(), mesh, [Replicate()])
).full_tensor().tolist() == big.tolist()
dist.destroy_process_group()
