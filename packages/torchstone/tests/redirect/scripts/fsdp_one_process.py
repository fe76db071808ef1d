"""FullyShardedDataParallel in a world of one: wrapping, mixed precision off, a full state dict."""

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

torch.cuda.set_device(0)
dist.init_process_group("nccl", init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
torch.manual_seed(2)
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
model = FSDP(model, device_id=torch.cuda.current_device(), use_orig_params=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

losses = []
for i in range(3):
    loss = model(torch.full((2, 4), 0.3 * (i + 1), device="cuda")).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

torch.save({"losses": losses}, "result.pt")
dist.destroy_process_group()
