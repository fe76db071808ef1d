"""What ``import torch`` calls (entry point ``torch.backends``): registers the eager device if it is asked to.

The setting ``autoload`` asks for it. It is off by default: PyTorch has one place for a device of this kind,
and another package may want it. Without the variable nothing is imported.
"""

from __future__ import annotations

import os
import sys
from types import FrameType


def register_if_asked() -> None:
    """Register ``pjrt`` if ``TORCHSTONE_AUTOLOAD`` says so, but not while Torchstone is imported itself."""
    if not os.environ.get("TORCHSTONE_AUTOLOAD") or _torchstone_imports(sys._getframe(1)):
        return
    from .config import config

    if config.autoload:
        from . import device

        device.register()


def _torchstone_imports(frame: FrameType | None) -> bool:
    """Whether a module of Torchstone, half imported itself, is what imports PyTorch."""
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith("torchstone."):
            return True
        frame = frame.f_back
    return False
