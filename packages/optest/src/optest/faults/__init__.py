"""The mutation test of the suite: runs faulty drivers and checks whether the built-in cases notice."""

from .campaign import FaultReport, Pair, Verdict, fault_kind, run_faults
from .catalogue import FAULTS, Fault, faults_of, find_fault
from .driver import FaultyDriver
from .rules import EXCLUSIONS, excluded

__all__ = [
    "EXCLUSIONS",
    "FAULTS",
    "Fault",
    "FaultReport",
    "FaultyDriver",
    "Pair",
    "Verdict",
    "excluded",
    "fault_kind",
    "faults_of",
    "find_fault",
    "run_faults",
]
