"""The device that stands in for CUDA: its names, its indices, and ``CUDA_VISIBLE_DEVICES``.

:mod:`.choice` chooses the device; :mod:`.mode` and :mod:`.areas` redirect calls to it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from ..torch_internals.dispatch import without_function_modes
from .places import device_of, parsed


@dataclass(frozen=True)
class Target:
    """A device type, and which of its devices the redirected code sees as ``cuda:0``, ``cuda:1``, ….

    ``type`` is PyTorch's device type. ``indices`` are the devices that may be used: CUDA index ``i`` is the
    device ``indices[i]``. ``cpu`` has as many devices as requested, and all are the same processor.
    """

    type: str
    indices: tuple[int, ...]

    @property
    def is_cpu(self) -> bool:
        return self.type == "cpu"

    @cached_property
    def module(self) -> Any:
        """``torch.cpu``, ``torch.mps``, ``torch.xpu`` or the module that the backend registered."""
        return torch.get_device_module(self.type)

    def device(self, index: int | None) -> torch.device:
        """Return the device for CUDA index ``index``, which must be in range; None means the first device.

        If the target's devices are numbered from 0 without a gap, None gives a device without an index,
        except on ``cpu``.
        """
        if self.is_cpu:
            return device_of(index or 0)
        if index is None and self.indices == tuple(range(len(self.indices))):
            return parsed(self.type)
        return parsed(f"{self.type}:{self.indices[index or 0]}")

    @cached_property
    def can_pin(self) -> bool:
        """Whether host memory can be pinned for this device (tried once)."""
        if self.is_cpu:
            return False
        try:
            with without_function_modes():
                return torch.empty(1, device="cpu").pin_memory().is_pinned()
        except RuntimeError:
            return False

    def __str__(self) -> str:
        return self.type if self.is_cpu else f"{self.type}:{','.join(map(str, self.indices))}"


def visible(target: Target) -> tuple[Target, str | None]:
    """Return ``target`` under ``CUDA_VISIBLE_DEVICES``, and a note about entries that cannot be followed.

    An empty list or -1 hides every device, as with CUDA. An entry that names no device of the target
    (in a script written for the third GPU of eight, say) is left out; if all are, the first device is used.
    """
    text = os.environ.get("CUDA_VISIBLE_DEVICES")
    if text is None:
        return target, None
    wanted: list[str] = []
    for entry in text.split(","):
        if not entry.strip() or entry.strip() == "-1":
            break
        wanted.append(entry.strip())
    present = [int(one) for one in wanted if one.isdecimal() and int(one) < len(target.indices)]
    missing = [one for one in wanted if not one.isdecimal() or int(one) >= len(target.indices)]
    if wanted and not present:
        present = [0]
    note = f"CUDA_VISIBLE_DEVICES names {', '.join(missing)}, which {target} has not" if missing else None
    return Target(target.type, tuple(target.indices[one] for one in present)), note
