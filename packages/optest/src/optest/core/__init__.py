"""The core of optest: the comparator and its tolerances.

``compare`` and ``compare_trees`` are pure functions of arrays; the records they
return carry the verdict, every metric and its text.
"""

from .comparator import compare
from .comparison import Accuracy, Comparison, TreeComparison, Worst
from .tolerance import EXACT, Tolerance, ToleranceTable, default_tolerance
from .trees import compare_trees
from .ulp import ordered, ulp_distance, ulp_size

__all__ = [
    "EXACT",
    "Accuracy",
    "Comparison",
    "Tolerance",
    "ToleranceTable",
    "TreeComparison",
    "Worst",
    "compare",
    "compare_trees",
    "default_tolerance",
    "ordered",
    "ulp_distance",
    "ulp_size",
]
