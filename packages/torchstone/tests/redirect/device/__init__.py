"""``testdev``: a small PrivateUse1 device on PyTorch's Python backend API, for the tests of the redirection.

Its tensors keep their device type; their bytes lie in memory of the CPU, and every operator that
PyTorch does not compose is computed there (:mod:`.kernels`). Work is done when it is asked for, and random
numbers come from the CPU's generator (:mod:`.module`), so that a script that runs on it must print what its
twin prints on the CPU. A process can register one PrivateUse1 device, once.
"""

from __future__ import annotations

from torchstone.torch_internals.private_device import answer_for_accelerator

from .kernels import KERNELS, NAME, register_kernels
from .module import BackendModule

__all__ = ["KERNELS", "NAME", "register"]


def register() -> None:
    """Make ``testdev`` a device of this process, and ``torch.testdev`` its module."""
    from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

    _setup_privateuseone_for_python_backend(NAME, BackendModule(NAME))
    register_kernels()
    # PyTorch ends the process where it asks an allocator that no device in Python has.
    answer_for_accelerator({"emptyHostCache": lambda: None})
