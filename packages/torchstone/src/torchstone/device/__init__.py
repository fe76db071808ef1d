"""The eager device ``pjrt``: unchanged PyTorch, with each operator run as a program on a PJRT device.

``import torchstone.device`` registers the device. Read the modules in this order: :mod:`.storage` (what a
tensor is), :mod:`.layout` (how a view lies in a flat array), :mod:`.calls` and :mod:`.operators` (from a call
to its plan), :mod:`.drafting` and :mod:`.building` (from a call to its program), :mod:`.plans` (running it),
:mod:`.kernels` and :mod:`.transfers` (operators that are not programs), :mod:`.fallback`,
:mod:`.registration` and :mod:`.module` (``torch.pjrt``).
"""

from . import module as pjrt
from .registration import register

__all__ = ["pjrt", "register"]

register()
