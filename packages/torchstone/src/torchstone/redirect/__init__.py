"""Run code that was written for CUDA on another device, within a scope that leaves no trace.

>>> with torchstone.redirected(target="cpu"):                       # doctest: +SKIP
...     torch.zeros(3, device="cuda") + torch.ones(3).cuda()

:mod:`.context` enters and leaves a scope, :mod:`.choice` picks the device, :mod:`.mode` redirects the
calls that PyTorch dispatches, :mod:`.areas` holds what must be replaced by name, :mod:`.callers` says
who is told that CUDA is here, :mod:`.policy` what happens to what has no meaning on the target, and
:mod:`.recorder` keeps what was redirected where. Importing this package imports neither torch nor changes
anything.
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
        )  # in a child it enters the parent's scope, which needs this package whole
        return getattr(importlib.import_module(f".{_LAZY[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
