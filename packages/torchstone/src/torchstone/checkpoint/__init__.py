"""Checkpoints: a whole training state in one folder of safetensors files, stored without pickle.

>>> checkpoint.save("run/step-5", model=model, optimizer=optimizer, step=5)   # doctest: +SKIP
>>> checkpoint.load("run/step-5", model=model, optimizer=optimizer).step      # doctest: +SKIP
5

A save is atomic and durable: at every moment the path holds the old checkpoint or the new one. The document
``docs/checkpoints.md`` describes the format, what it promises and how later versions read it.
"""

from .convert import convert
from .loading import Checkpoint, load
from .manager import Manager
from .manifest import VERSION
from .matching import Report
from .resuming import ResumableLoader
from .saving import save, save_async

__all__ = [
    "VERSION",
    "Checkpoint",
    "Manager",
    "Report",
    "ResumableLoader",
    "convert",
    "load",
    "save",
    "save_async",
]
