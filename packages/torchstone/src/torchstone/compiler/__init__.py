"""The compiler: capture, normalize, lower. It returns programs and runs nothing."""

from .explanation import Explanation, explain
from .pipeline import Pass, Pipeline
from .program import Program, build_program, lower_program, normalize
from .rules import bounds, capture_rule
from .user_passes import graph_pass

__all__ = [
    "Explanation",
    "Pass",
    "Pipeline",
    "Program",
    "bounds",
    "build_program",
    "capture_rule",
    "explain",
    "graph_pass",
    "lower_program",
    "normalize",
]
