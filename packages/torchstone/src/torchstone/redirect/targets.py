"""Which device stands in for CUDA: names, availability, indices, `CUDA_VISIBLE_DEVICES`.

Not here: what is redirected to it (:mod:`.mode`, :mod:`.areas`).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..config import config
from ..errors import RedirectError, RedirectTargetAbsent, RedirectTargetError
from .children import LIMIT

if TYPE_CHECKING:
    import torch

OFF = "off"
EAGER = "pjrt"
"""The type of Torchstone's own eager device."""
AUTO = "auto"


@dataclass(frozen=True)
class Target:
    """A kind of device, and which of its devices the redirected code sees as ``cuda:0``, ``cuda:1``, ….

    ``type`` is PyTorch's device type; ``indices`` are the devices that may be used, in the order in
    which CUDA's indices count them. ``cpu`` has as many as are asked for, and each is the same processor.
    """

    type: str
    indices: tuple[int, ...]

    @property
    def is_cpu(self) -> bool:
        return self.type == "cpu"

    @cached_property
    def module(self) -> Any:
        """``torch.cpu``, ``torch.mps``, ``torch.xpu`` or the module that the backend registered."""
        import torch

        return torch.get_device_module(self.type)

    def device(self, index: int | None) -> torch.device:
        """The device for CUDA index ``index`` (which must be in range); no index stays without one."""
        from .places import device_of, parsed

        if self.is_cpu:
            return device_of(index or 0)
        if index is None and self.indices == tuple(range(len(self.indices))):
            return parsed(self.type)
        return parsed(f"{self.type}:{self.indices[index or 0]}")

    @cached_property
    def can_pin(self) -> bool:
        """Whether host memory can be pinned for this device (asked of PyTorch once)."""
        import torch

        from ..torch_internals.dispatch import without_function_modes

        if self.is_cpu:
            return False
        try:
            with without_function_modes():
                return torch.empty(1, device="cpu").pin_memory().is_pinned()
        except RuntimeError:
            return False

    def __str__(self) -> str:
        return self.type if self.is_cpu else f"{self.type}:{','.join(map(str, self.indices))}"


def resolve(source: str, target: str | torch.device, devices: int = 1) -> Target | None:
    """The target of a redirection, or None where nothing is to be redirected.

    ``devices`` is how many CUDA devices ``cpu`` stands for; another target has its own.

    None: the setting ``redirect`` is ``off``; the target is ``auto`` and CUDA is really here; or the
    target is ``cuda`` itself. Raises :class:`RedirectError` for a source other than ``cuda`` and
    :class:`RedirectTargetError` for a target that is unknown or absent, or that offers other devices.
    """
    if source != "cuda":
        raise RedirectError(
            f"source={source!r} cannot be redirected", hint='only code written for CUDA can: source="cuda"'
        )
    if config.redirect.strip().lower() == OFF:
        return None
    asked = str(target)
    if asked == AUTO:
        asked = config.redirect
    if asked == AUTO:
        return None if _cuda_is_here() else _offering(devices, _pick())
    kind, index = _parse(asked)
    if kind != "cuda":
        return _offering(devices, _named(kind, index))
    if not _cuda_is_here():
        raise _not_here(kind)
    return None


def _offering(devices: int, target: Target) -> Target:
    """``target`` with as many devices as were asked for."""
    if not 1 <= devices <= LIMIT:
        raise RedirectTargetError(
            f"devices={devices} cannot be offered", hint=f"ask for 1 to {LIMIT} CUDA devices"
        )
    if devices == 1:
        return target
    if not target.is_cpu:
        raise RedirectTargetError(
            f"devices={devices} cannot be offered: {target.type} has {len(target.indices)} of its own",
            hint="leave devices out, or use target='cpu', which stands for as many as are asked for",
        )
    return Target(target.type, tuple(range(devices)))


def _cuda_is_here() -> bool:
    """Whether this thread may use CUDA as it is: not what an outer scope says of it."""
    import torch

    from .scope import current_scope

    return current_scope() is None and torch.cuda.is_available()


def _pick() -> Target:
    import torch

    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if accelerator is None or accelerator.type == "cuda":
        return Target("cpu", (0,))
    return _named(accelerator.type, None)


def _parse(asked: str) -> tuple[str, int | None]:
    kind, colon, index = asked.partition(":")
    if colon and not index.isdecimal():
        raise RedirectTargetError(
            f"target {asked!r} is not a device",
            hint="write a device type with an optional index, like 'mps:0'",
        )
    return kind, int(index) if colon else None


def _named(kind: str, index: int | None) -> Target:
    import torch

    if kind == EAGER:
        from .. import device  # registers with PyTorch, so only where it is asked for

        device.register()
    known = known_types()
    if kind not in known:
        raise RedirectTargetError(
            f"target {kind!r} is not a device type that this PyTorch knows",
            hint=f"use auto or one of: {', '.join(known)} (a backend's own name: import the backend first)",
        )
    count = 1 if kind == "cpu" else _count(torch.get_device_module(kind))
    if not count:
        raise _not_here(kind)
    if index is not None and index >= count:
        raise RedirectTargetAbsent(
            f"target '{kind}:{index}' is absent: there are {count} {kind} device(s), counted from 0",
            hint=f"use '{kind}' or an index below {count}",
        )
    return Target(kind, tuple(range(count)) if index is None else (index,))


def _not_here(kind: str) -> RedirectTargetAbsent:
    return RedirectTargetAbsent(
        f"target {kind!r} is not available here: PyTorch finds no such device",
        hint="use target='auto', which picks a device that is here, or 'cpu'",
    )


def known_types() -> list[str]:
    """The device types that can be targets: those of this PyTorch, and the PrivateUse1 device.

    If no such device is registered, that is Torchstone's own, which is registered where it is asked for.
    """
    import torch

    from ..torch_internals.devices import private_backend_name

    found = ["cpu", "cuda", "mps", "xpu"]
    private = private_backend_name()
    if hasattr(torch, private):
        found.append(private)
    elif private == "privateuseone":
        found.append(EAGER)
    return found


def _count(module: Any) -> int:
    available = getattr(module, "is_available", None)
    if available is not None and not available():
        return 0
    count = getattr(module, "device_count", None)
    return 1 if count is None else int(count())


def visible(target: Target) -> tuple[Target, str | None]:
    """``target`` under ``CUDA_VISIBLE_DEVICES``, and what of the variable could not be followed.

    An empty list or -1 hides every device, as with CUDA. An entry that names no device of the target
    (a script written for the third GPU of eight) is left out; if all do, the first device stands in.
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
