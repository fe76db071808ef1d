"""What is covered, computed from recorded results: criteria, maturity stages, COVERAGE.md, badges.

Nothing here is declared by hand but the stages themselves and what no result can show,
and both are data. Not here: running anything, and the ledger.
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
