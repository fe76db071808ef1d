"""Programs with sizes that depend on values; see :mod:`.retrace`."""

from .retrace import Bounded, bounded, unknown_symbols
from .sizes import NoForm

__all__ = ["Bounded", "NoForm", "bounded", "unknown_symbols"]
