"""Computes coverage from recorded results: criteria, maturity stages, COVERAGE.md, badges.

Only two things are declared by hand, both as data: the stages themselves, and evidence for items
that no result can show. Not here: running anything, and the ledger.
"""

from .attestation import Attestation, load_attestations
from .evidence import Evidence, collect
from .operators import OperatorCoverage, judge_operators
from .progress import Progress, assess
from .stages import StagePlan, load_stages

__all__ = [
    "Attestation",
    "Evidence",
    "OperatorCoverage",
    "Progress",
    "StagePlan",
    "assess",
    "collect",
    "judge_operators",
    "load_attestations",
    "load_stages",
]
