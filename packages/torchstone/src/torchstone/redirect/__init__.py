"""Run code that was written for CUDA on another device, within a scope that leaves no trace.

>>> with torchstone.redirected(target="cpu"):                       # doctest: +SKIP
...     torch.zeros(3, device="cuda") + torch.ones(3).cuda()

:mod:`.context` enters and leaves a scope, :mod:`.choice` picks the device, and :mod:`.mode` redirects the
calls that PyTorch dispatches. :mod:`.areas` lists the functions that must be replaced by name.
:mod:`.callers` decides which calling code is told that CUDA is available. :mod:`.policy` decides what happens
when a call has no meaning on the target, and :mod:`.recorder` keeps what was redirected and where. Importing
this package does not import torch and changes nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .callers import CallerRule
    from .context import redirected
    from .patching import patches
    from .recorder import Event, Recorder
    from .rows import Patch

__all__ = ["CallerRule", "Event", "Patch", "Recorder", "patches", "redirected"]

_LAZY = {
    "CallerRule": "callers",
    "Event": "recorder",
    "Patch": "rows",
    "Recorder": "recorder",
    "patches": "patching",
    "redirected": "context",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        importlib.import_module(
            "torch"
        )  # in a child process this enters the parent's scope, so this package must be imported in full
        return getattr(importlib.import_module(f".{_LAZY[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
