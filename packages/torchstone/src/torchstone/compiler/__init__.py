"""The compiler: capture, normalize, lower. It returns programs and runs nothing."""

from .explanation import Explanation, explain
from .program import Program, build_program, lower_program
from .rules import bounds, capture_rule

__all__ = [
    "Explanation",
    "Program",
    "bounds",
    "build_program",
    "capture_rule",
    "explain",
    "lower_program",
]
