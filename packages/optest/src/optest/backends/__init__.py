"""Backends: the driver interface, the manager of drivers, and the built-in drivers.

Importing this package registers the built-in drivers. It does not import PyTorch: the drivers that need it
load it when they are set up.
"""

from .ascend import AscendBackendDriver
from .command import CommandDriver
from .driver import Answer, BackendDriver, CallDriver, ProgramFailed, Unsupported
from .http import HttpDriver
from .manager import BackendManager, Family, backend_manager
from .numpy_driver import NumpyDriver
from .stub import StubDriver

for _driver in (StubDriver(), NumpyDriver(), CommandDriver(), AscendBackendDriver(), HttpDriver()):
    backend_manager.register(_driver)
backend_manager.register_family(
    Family("torch", "optest.torch.device:TorchDevice", ("cpu", "cuda", "mps", "xpu"))
)
backend_manager.register_family(Family("faulty", "optest.faults.driver:FaultyDriver"))
backend_manager.register_family(Family("torch-compile", "optest.torch.compiled:TorchCompile", ("inductor",)))

__all__ = [
    "Answer",
    "AscendBackendDriver",
    "BackendDriver",
    "BackendManager",
    "CallDriver",
    "Family",
    "ProgramFailed",
    "Unsupported",
    "backend_manager",
]
