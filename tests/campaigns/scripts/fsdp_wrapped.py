# run: --devices 2 -m torch.distributed.run --nproc-per-node 2 --standalone
"""FullyShardedDataParallel (the wrapper) on two ranks, with a state dict gathered at the end."""

import copy
import os
import warnings

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullStateDictConfig, StateDictType
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

warnings.simplefilter("ignore")
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
torch.manual_seed(0)
reference = nn.Sequential(nn.Linear(6, 10), nn.Tanh(), nn.Linear(10, 2))
model = FSDP(copy.deepcopy(reference), device_id=torch.cuda.current_device(), use_orig_params=True)
assert next(model.parameters()).device == torch.device("cuda", rank)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
plain = torch.optim.SGD(reference.parameters(), lr=0.1)
x, y = torch.randn(8, 6), torch.randn(8, 2)
for _ in range(3):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x[rank::2].cuda()), y[rank::2].cuda()).backward()
    model.clip_grad_norm_(100.0)
    optimizer.step()
    plain.zero_grad()
    nn.functional.mse_loss(reference(x), y).backward()
    plain.step()
config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, config):
    state = model.state_dict()
if rank == 0:
    for name, value in reference.state_dict().items():
        assert state[name].device.type == "cpu"
        torch.testing.assert_close(state[name], value)
dist.barrier()
dist.destroy_process_group()
