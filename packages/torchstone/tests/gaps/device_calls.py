"""One call for each public name that takes a device and cannot be called with made-up arguments.

``CALLS[name](device)`` makes the call and returns the type of the device of its result, or of what it set up.
As a program, this file redirects to the device type that it is given and prints, as JSON, what each name
returned. It registers the device ``testdev`` first if that is the type.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist

_POINTERS, _COLUMNS = torch.tensor([0, 1]), torch.tensor([0])


def _storage(name: str) -> Callable[[str], str]:
    return lambda device: str(getattr(torch, name)(3).to(device=torch.device(device)).device.type)


def _quantized(device: str) -> str:
    like = torch.quantize_per_tensor(torch.ones(2), 1.0, 0, torch.qint8)
    return str(torch.empty_quantized((2,), like, device=device).device.type)


def _from_file(device: str) -> str:
    with tempfile.NamedTemporaryFile() as file:
        return str(torch.from_file(file.name, shared=True, size=0, device=device).device.type)


def _default(device: str) -> str:
    torch.set_default_device(device)
    try:
        return str(torch.empty(2).device.type)
    finally:
        torch.set_default_device(None)


def _autocast(device: str) -> str:
    with torch.autocast(device):
        product = torch.ones(2, 2, device=device) @ torch.ones(2, 2, device=device)
    assert product.dtype is not torch.float32
    return product.device.type


def _scaled(device: str) -> str:
    scaled = torch.GradScaler(device, init_scale=4.0).scale(torch.ones(2, device=device))
    assert scaled.tolist() == [4.0, 4.0]
    return scaled.device.type


def _sent(device: str) -> str:
    """Broadcast objects from the process to itself, through a tensor on ``device``."""
    objects = [{"a": 1}, "b"]
    dist.broadcast_object_list(objects, src=0, device=torch.device(device))
    assert objects == [{"a": 1}, "b"]
    return torch.device(device).type


def _ones(device: str) -> torch.Tensor:
    return torch.ones(1, 2, 2, device=device)


CALLS: dict[str, Callable[[str], str]] = {
    **{f"torch.{name}Storage": _storage(f"{name}Storage") for name in ("Bool", "Byte", "Char", "Double")},
    **{f"torch.{name}Storage": _storage(f"{name}Storage") for name in ("Float", "Int", "Long", "Short")},
    "torch.GradScaler": _scaled,
    "torch.Tensor.new": lambda device: torch.ones(2, device=device).new(2, device=device).device.type,
    "torch.TypedStorage": lambda device: (
        torch.TypedStorage(3, dtype=torch.float32, device=device).device.type
    ),
    "torch.TypedStorage.cuda": lambda device: torch.FloatStorage(3).cuda().device.type,
    "torch.TypedStorage.to": _storage("FloatStorage"),
    "torch.autocast": _autocast,
    "torch.distributed.DeviceMesh": lambda device: dist.DeviceMesh(device, [0]).device_type,
    "torch.distributed.DeviceMesh.from_group": lambda device: (
        dist.DeviceMesh.from_group(dist.group.WORLD, device).device_type
    ),
    "torch.distributed.broadcast_object_list": _sent,
    "torch.distributed.init_device_mesh": lambda device: dist.init_device_mesh(device, (1,)).device_type,
    "torch.empty_quantized": _quantized,
    "torch.from_file": _from_file,
    "torch.nn.Module.cuda": lambda device: torch.nn.Linear(2, 2).cuda().weight.device.type,
    "torch.nn.Module.to_empty": lambda device: (
        torch.nn.Linear(2, 2).to_empty(device=device).weight.device.type
    ),
    "torch.nn.modules.Transformer": lambda device: (
        torch.nn.Transformer(4, 2, 1, 1, 4, device=device).encoder.layers[0].linear1.weight.device.type
    ),
    "torch.nn.modules.Transformer.generate_square_subsequent_mask": lambda device: (
        torch.nn.Transformer.generate_square_subsequent_mask(3, device=torch.device(device)).device.type
    ),
    "torch.set_default_device": _default,
    "torch.sparse_bsc_tensor": lambda device: (
        torch.sparse_bsc_tensor(_POINTERS, _COLUMNS, _ones(device), device=device).device.type
    ),
    "torch.sparse_bsr_tensor": lambda device: (
        torch.sparse_bsr_tensor(_POINTERS, _COLUMNS, _ones(device), device=device).device.type
    ),
    "torch.sparse_compressed_tensor": lambda device: (
        torch.sparse_compressed_tensor(
            _POINTERS, _COLUMNS, _ones(device), layout=torch.sparse_bsr, device=device
        ).device.type
    ),
}


@contextmanager
def process_group(backend: str) -> Iterator[None]:
    """A process group of one."""
    with tempfile.TemporaryDirectory() as folder:
        store = (Path(folder) / "store").as_uri()
        dist.init_process_group(backend, init_method=store, rank=0, world_size=1)
        try:
            yield
        finally:
            dist.destroy_process_group()


def call_all(device: str) -> dict[str, str]:
    """Return what each name gives for ``device``: a device type, or the exception."""
    found = {}
    for name, call in CALLS.items():
        try:
            found[name] = call(device)
        except Exception as error:  # noqa: BLE001 -- it is what is printed
            found[name] = type(error).__name__
    return found


def main(target: str) -> None:
    from torchstone.redirect import redirected

    if target == "testdev":
        from redirect.device import register

        register()
    with redirected(target=target, policy="quiet"), process_group("nccl"):
        print(json.dumps(call_all("cuda")))


if __name__ == "__main__":
    main(sys.argv[1])
