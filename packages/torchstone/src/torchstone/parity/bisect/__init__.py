"""Find the first value that departs from eager PyTorch, and its cause: see docs/bisect.md."""

from .arbiter import Kind
from .findings import Finding, Report
from .search import bisect

__all__ = ["Finding", "Kind", "Report", "bisect"]
