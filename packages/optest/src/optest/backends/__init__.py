"""Backends: what a driver is, which there are, and the built-in ones.

Importing this package registers the built-in drivers. It imports no PyTorch: its
drivers load it when they are set up.
"""

from .ascend import AscendBackendDriver
from .command import CommandDriver
from .driver import BackendDriver, ProgramFailed, Unsupported
from .http import HttpDriver
from .manager import BackendManager, Family, backend_manager
from .numpy_driver import NumpyDriver
from .stub import StubDriver


def _torch_device(name: str) -> BackendDriver:
    from ..torch.device import TorchDevice

    return TorchDevice(name)


def _torch_compile(name: str) -> BackendDriver:
    from ..torch.compiled import TorchCompile

    return TorchCompile(name)


def _faulty(name: str) -> BackendDriver:
    from ..faults.driver import FaultyDriver

    return FaultyDriver(name)


for _driver in (StubDriver(), NumpyDriver(), CommandDriver(), AscendBackendDriver(), HttpDriver()):
    backend_manager.register(_driver)
backend_manager.register_family(Family("torch", _torch_device, ("cpu", "cuda", "mps", "xpu")))
backend_manager.register_family(Family("faulty", _faulty))
backend_manager.register_family(Family("torch-compile", _torch_compile, ("inductor",)))

__all__ = [
    "AscendBackendDriver",
    "BackendDriver",
    "BackendManager",
    "Family",
    "ProgramFailed",
    "Unsupported",
    "backend_manager",
]
