"""Devices as integers, in every place where PyTorch takes them."""

import torch

torch.manual_seed(0)
gpu = 0
torch.cuda.set_device(gpu)
model = torch.nn.Linear(3, 2).cuda(gpu)
x = torch.ones(2, 3).cuda(0)
y = torch.zeros(2, 3, device=0) + x
z = torch.arange(6, device=gpu).reshape(2, 3).to(0)
full = torch.full((2, 3), 2.5, device=0)
like = torch.empty_like(x, device=0).copy_(x)
made = x.new_tensor([1, 2, 3], device=0)
tensor = torch.tensor([[1.0, 2.0, 3.0]], device=0)
moved = torch.nn.Linear(3, 2).to(0)
rank = x.get_device()
assert rank == 0
assert torch.device(0) == torch.device("cuda", 0) == torch.device("cuda:0")
assert all(t.is_cuda for t in (x, y, z, full, like, made, tensor, *model.parameters(), *moved.parameters()))
assert torch.cuda.get_device_name(0)
assert torch.cuda.memory_allocated(0) >= 0

out = model(x + y + z + full)
torch.save({"out": out, "made": made, "tensor": tensor, "moved": moved.weight}, "result.pt")
