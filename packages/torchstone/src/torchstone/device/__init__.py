"""The eager device ``pjrt``: PyTorch as it is, each operator a program on a PJRT device.

``import torchstone.device`` registers it. Read it in this order: :mod:`.storage` (what a tensor is),
:mod:`.layout` (how a view lies in a flat array), :mod:`.calls` and :mod:`.operators` (from a call to its
plan), :mod:`.drafting` and :mod:`.building` (from a call to its program), :mod:`.plans` (running it),
:mod:`.kernels` and :mod:`.transfers` (what is not a program), :mod:`.fallback`, :mod:`.registration` and
:mod:`.module` (``torch.pjrt``).
"""

from . import module as pjrt
from .registration import register

__all__ = ["pjrt", "register"]

register()
