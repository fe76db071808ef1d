"""Device picking in the manner of Accelerate: a state object, send_to_device, and prepared objects."""

import gc
from collections.abc import Mapping
from typing import ClassVar

import torch


def is_cuda_available() -> bool:
    return torch.cuda.is_available() and torch.cuda.device_count() > 0


class PartialState:
    _shared: ClassVar[dict] = {}

    def __init__(self, cpu: bool = False) -> None:
        self.__dict__ = self._shared
        if not self._shared:
            self.device = (
                torch.device("cuda", torch.cuda.current_device()) if not cpu else torch.device("cpu")
            )
            self.backend = "nccl" if is_cuda_available() and not cpu else "gloo"
            self.local_process_index = 0

    def wait_for_everyone(self) -> None:
        torch.cuda.synchronize()


def send_to_device(data, device, non_blocking: bool = False):
    if isinstance(data, (tuple, list)):
        return type(data)(send_to_device(item, device, non_blocking) for item in data)
    if isinstance(data, Mapping):
        return type(data)({k: send_to_device(v, device, non_blocking) for k, v in data.items()})
    return data.to(device, non_blocking=non_blocking) if hasattr(data, "to") else data


class Accelerator:
    def __init__(self, mixed_precision: str = "no", cpu: bool = False) -> None:
        self.state = PartialState(cpu)
        self.dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(mixed_precision)

    @property
    def device(self):
        return self.state.device

    def prepare(self, *objects):
        return tuple(item.to(self.device) if isinstance(item, torch.nn.Module) else item for item in objects)

    def autocast(self):
        return torch.autocast(self.device.type, dtype=self.dtype, enabled=self.dtype is not None)

    def free_memory(self) -> None:
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(self.device)


torch.manual_seed(9)
accelerator = Accelerator("bf16")
model = torch.nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
model, optimizer = accelerator.prepare(model, optimizer)

metrics = []
for _ in range(3):
    batch = send_to_device({"x": torch.randn(6, 4), "meta": ["a", "b"]}, accelerator.device, True)
    with accelerator.autocast():
        loss = model(batch["x"]).float().pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    metrics.append(loss.detach().cpu())
accelerator.state.wait_for_everyone()
accelerator.free_memory()

torch.save({"metrics": torch.stack(metrics), "model": model.state_dict()}, "result.pt")
