"""The old multi-GPU idiom: DataParallel where there are several devices, and also where there is one."""

import torch
import torch.nn as nn

torch.manual_seed(0)
device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
model = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 2))
if torch.cuda.device_count() > 1:
    print("using", torch.cuda.device_count(), "GPUs")
    model = nn.DataParallel(model)
model.to(device)
single = nn.DataParallel(nn.Linear(2, 1), device_ids=[0], output_device=0).cuda()

x = torch.randn(6, 5).to(device)
out = single(model(x))
out.sum().backward()
assert out.is_cuda
assert single.module.weight.grad.is_cuda
state = {k.removeprefix("module."): v for k, v in single.state_dict().items()}
torch.save({"out": out, "grad": single.module.weight.grad, "state": state}, "result.pt")
