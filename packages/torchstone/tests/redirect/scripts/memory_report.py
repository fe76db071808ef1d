"""Prints memory figures through a training step, as people do when they hunt an out-of-memory error."""

import torch


def report(tag: str) -> None:
    allocated = torch.cuda.memory_allocated() / 2**20
    reserved = torch.cuda.memory_reserved() / 2**20
    peak = torch.cuda.max_memory_allocated() / 2**20
    print(f"[{tag}] allocated {allocated:.2f} MiB, reserved {reserved:.2f} MiB, peak {peak:.2f} MiB")


torch.cuda.empty_cache()
torch.cuda.reset_peak_memory_stats()
report("start")
x = torch.ones(256, 256, device="cuda")
report("after allocation")
y = (x @ x).sum()
report("after compute")
stats = torch.cuda.memory_stats()
peak_bytes = stats.get("allocated_bytes.all.peak", 0)
print(torch.cuda.memory_summary(abbreviated=True))
free, total = torch.cuda.mem_get_info()
assert 0 <= free <= total
with torch.cuda.device(0):
    torch.cuda.empty_cache()
try:
    torch.cuda.set_per_process_memory_fraction(0.9)
except RuntimeError as error:
    print("no limit:", error)
try:
    torch.empty(0, device="cuda")
except torch.cuda.OutOfMemoryError as error:
    raise SystemExit(1) from error
assert isinstance(peak_bytes, int)
assert issubclass(torch.cuda.OutOfMemoryError, RuntimeError)

torch.save({"y": y}, "result.pt")
