"""Batched inference with preallocated pinned host buffers, half precision and inference mode."""

import torch

torch.manual_seed(0)
model = (
    torch.nn.Sequential(torch.nn.Conv1d(2, 3, 2), torch.nn.ReLU(), torch.nn.Flatten()).cuda().half().eval()
)
host_in = torch.empty(2, 2, 5, dtype=torch.float16, pin_memory=True)
host_out = torch.empty(2, 12, dtype=torch.float16).pin_memory()
device_in = torch.empty_like(host_in, device="cuda")
assert host_in.device.type == "cpu"
assert host_in.is_pinned() == host_out.is_pinned()

results = []
stream = torch.cuda.Stream()
with torch.inference_mode(), torch.cuda.stream(stream):
    for i in range(3):
        host_in.fill_(0.5 * i)
        device_in.copy_(host_in, non_blocking=True)
        host_out.copy_(model(device_in), non_blocking=True)
        stream.synchronize()
        results.append(host_out.clone())
assert model[0].weight.is_cuda
assert model[0].weight.dtype == torch.float16

torch.save({"results": torch.stack(results)}, "result.pt")
