"""Backends: what a driver is, which there are, and the built-in ones.

Importing this package registers the built-in drivers. It imports no PyTorch: its
drivers load it when they are set up.
"""

from .driver import BackendDriver, ProgramFailed, Unsupported
from .manager import BackendManager, Family, backend_manager
from .numpy_driver import NumpyDriver
from .stub import StubDriver

backend_manager.register(StubDriver())
backend_manager.register(NumpyDriver())

__all__ = [
    "BackendDriver",
    "BackendManager",
    "Family",
    "ProgramFailed",
    "Unsupported",
    "backend_manager",
]
