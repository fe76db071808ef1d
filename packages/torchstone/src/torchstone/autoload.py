"""The hook that ``import torch`` calls (entry point ``torch.backends``) to register the eager device.

It does so only if the setting ``autoload`` is on. The default is off, because PyTorch has one slot for a
device of this kind, and another package may need it. If the variable is not set, nothing is imported.
"""

from __future__ import annotations

import os
import sys
from types import FrameType


def register_if_asked() -> None:
    """Register ``pjrt`` if ``TORCHSTONE_AUTOLOAD`` says so, but not while Torchstone is being imported."""
    if not os.environ.get("TORCHSTONE_AUTOLOAD") or _torchstone_imports(sys._getframe(1)):
        return
    from .config import config

    if config.autoload:
        from . import device

        device.register()


def _torchstone_imports(frame: FrameType | None) -> bool:
    """Whether a module of Torchstone that is still being imported is importing PyTorch."""
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith("torchstone."):
            return True
        frame = frame.f_back
    return False
