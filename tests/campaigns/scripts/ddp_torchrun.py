# run: --devices 2 -m torch.distributed.run --nproc-per-node 2 --standalone
"""DistributedDataParallel with nccl under torchrun: each rank its own device, gradients averaged."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

assert torch.accelerator.is_available()
rank, local_rank = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
device = torch.device(torch.accelerator.current_accelerator().type, local_rank)
assert torch.get_device_module(device.type) is torch.cuda
torch.accelerator.set_device_index(local_rank)
torch.cuda.set_device(device)
dist.init_process_group(backend="nccl", device_id=device)
assert dist.get_world_size() == 2

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
reference = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
reference.load_state_dict(model.state_dict())
x = torch.randn(16, 4)
y = x.sum(1, keepdim=True)
parallel = DistributedDataParallel(model.to(device), device_ids=[local_rank], output_device=local_rank)
optimizer = torch.optim.SGD(parallel.parameters(), lr=0.05)
plain = torch.optim.SGD(reference.parameters(), lr=0.05)
sampler = DistributedSampler(TensorDataset(x, y), shuffle=True)
loader = DataLoader(TensorDataset(x, y), batch_size=4, sampler=sampler, pin_memory=True)
for epoch in range(3):
    sampler.set_epoch(epoch)
    for inputs, targets in loader:
        inputs, targets = inputs.to(device, non_blocking=True), targets.to(device, non_blocking=True)
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.mse_loss(parallel(inputs), targets)
        loss.backward()
        optimizer.step()
        gathered = [torch.zeros_like(inputs) for _ in range(2)]
        dist.all_gather(gathered, inputs)
        assert {one.device for one in gathered} == {device}
        whole = torch.cat(gathered).cpu()
        plain.zero_grad()
        nn.functional.mse_loss(reference(whole), whole.sum(1, keepdim=True)).backward()
        plain.step()
for ours, theirs in zip(parallel.module.parameters(), reference.parameters(), strict=False):
    assert ours.device == device
    assert ours.grad.device == device
    torch.testing.assert_close(ours.detach().cpu(), theirs.detach())
dist.barrier(device_ids=[local_rank])
del parallel, model
dist.destroy_process_group()
