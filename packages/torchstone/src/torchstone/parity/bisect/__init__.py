"""The first value that departs from eager PyTorch, and whose fault it is: see docs/bisect.md."""

from .arbiter import Kind
from .findings import Finding, Report
from .search import bisect

__all__ = ["Finding", "Kind", "Report", "bisect"]
