"""Choosing the device that stands in for CUDA, from the requested target and the available devices."""

from __future__ import annotations

from typing import Any

import torch

from ..config import config
from ..errors import RedirectError, RedirectTargetAbsent, RedirectTargetError
from ..torch_internals.devices import private_backend_name
from .options import LIMIT
from .scope import current_scope
from .targets import Target

OFF = "off"
EAGER = "pjrt"
"""The type of Torchstone's own eager device."""
AUTO = "auto"


def resolve(source: str, target: str | torch.device, devices: int = 1) -> Target | None:
    """Return the target of a redirection, or None if nothing is to be redirected.

    ``devices`` is the number of CUDA devices that ``cpu`` stands for; any other target has its own number.

    The result is None if the setting ``redirect`` is ``off``, if the target is ``auto`` and a real CUDA
    device is available, or if the target is ``cuda`` itself. Raises :class:`RedirectError` for a source other
    than ``cuda``, and :class:`RedirectTargetError` for a target that is unknown or absent, or that cannot
    offer ``devices`` devices.
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
    """Return ``target`` with the requested number of devices, which only ``cpu`` can choose freely."""
    if type(devices) is not int or not 1 <= devices <= LIMIT:
        raise RedirectTargetError(
            f"devices={devices!r} cannot be offered", hint=f"ask for 1 to {LIMIT} CUDA devices"
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
    """Whether a real CUDA device is available; False inside a scope, which would answer for CUDA."""
    return current_scope() is None and torch.cuda.is_available()


def _pick() -> Target:
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
    if kind == EAGER:
        from .. import device  # registers with PyTorch, so only if requested

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

    If no PrivateUse1 device is registered, the list has Torchstone's own, which is registered when it is
    requested as the target.
    """
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
