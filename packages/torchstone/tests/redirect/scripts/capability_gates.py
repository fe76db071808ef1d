"""Gates on device properties and capability, as kernels' front ends have them."""

import torch

assert torch.cuda.is_available()
index = torch.cuda.current_device()
properties = torch.cuda.get_device_properties(index)
major, minor = torch.cuda.get_device_capability(index)
name = torch.cuda.get_device_name(index)
print(f"{name}: capability {major}.{minor}, {properties.total_memory / 2**30:.1f} GiB")
print(properties)
assert name
assert properties.name
assert properties.total_memory > 0
assert (properties.major, properties.minor) == (major, minor)

use_tf32 = major >= 8
if use_tf32:
    torch.backends.cuda.matmul.allow_tf32 = True
dtype = torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
use_flash = (major, minor) >= (8, 0) and torch.version.cuda is not None
print("flash attention:", use_flash)
arch_list = torch.cuda.get_arch_list()
assert isinstance(arch_list, list)
workers = max(1, properties.multi_processor_count // 64)
for i in range(torch.cuda.device_count()):
    assert torch.cuda.get_device_name(i) == torch.cuda.get_device_name(torch.device("cuda", i))
    print(i, torch.cuda.can_device_access_peer(i, i) if torch.cuda.device_count() > 1 else "alone")

q = torch.linspace(-1, 1, 8, device="cuda").reshape(1, 1, 2, 4)
attention = torch.softmax(q @ q.transpose(-1, -2), dim=-1) @ q
torch.save({"attention": attention, "dtype": str(dtype)}, "result.pt")
