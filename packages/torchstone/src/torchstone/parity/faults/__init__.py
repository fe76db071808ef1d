"""The mutation test of lowerings: break them, and see whether the suite over PyTorch's database notices.

It tests the suite ``opinfo`` with Torchstone's lowerings, as ``optest faults`` tests the built-in
suite with its drivers.
"""

from .campaign import FaultReport, Mutant, Verdict, run_faults
from .catalogue import Fault, faults_of, kinds
from .rules import EXCLUSIONS, Exclusion, excluded

__all__ = [
    "EXCLUSIONS",
    "Exclusion",
    "Fault",
    "FaultReport",
    "Mutant",
    "Verdict",
    "excluded",
    "faults_of",
    "kinds",
    "run_faults",
]
