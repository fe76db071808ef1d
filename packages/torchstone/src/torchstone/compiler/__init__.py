"""The compiler: capture, normalize, lower. It returns programs and runs nothing."""

from .explanation import Explanation, explain
from .program import Program, build_program, lower_program

__all__ = ["Explanation", "Program", "build_program", "explain", "lower_program"]
