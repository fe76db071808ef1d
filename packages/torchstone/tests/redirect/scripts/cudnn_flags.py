"""Backend flags of a reproducible training script; all of them read back as they were set."""

import os

import torch
import torch.backends.cudnn as cudnn

os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
cudnn.benchmark = True
cudnn.deterministic = True
torch.backends.cudnn.allow_tf32 = False
torch.backends.cuda.matmul.allow_tf32 = True
torch.use_deterministic_algorithms(True, warn_only=True)
torch.set_float32_matmul_precision("high")
print("cudnn", cudnn.is_available(), cudnn.version(), "enabled", cudnn.enabled)
print("cuda", torch.version.cuda, torch.backends.cuda.is_built())
assert cudnn.benchmark
assert cudnn.deterministic
assert not cudnn.allow_tf32
with cudnn.flags(enabled=False, benchmark=False):
    assert not cudnn.enabled
    assert not cudnn.benchmark
assert cudnn.benchmark
torch.backends.cuda.cufft_plan_cache.clear()
torch.backends.cuda.preferred_linalg_library("default")
assert torch.are_deterministic_algorithms_enabled()

torch.manual_seed(0)
conv = torch.nn.Conv2d(2, 3, 3).cuda()
x = torch.randn(1, 2, 5, 5).cuda().to(memory_format=torch.channels_last)
y = conv(x)
y.mean().backward()
torch.use_deterministic_algorithms(False)
torch.set_float32_matmul_precision("highest")

torch.save({"y": y, "grad": conv.weight.grad}, "result.pt")
