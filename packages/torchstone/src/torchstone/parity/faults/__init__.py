"""The mutation test of lowerings: break them, and see whether the suite over PyTorch's database notices.

What ``optest faults`` is to the built-in suite and its drivers, this is to the suite ``opinfo``
and Torchstone's lowerings.
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
