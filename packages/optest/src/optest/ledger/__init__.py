"""The result ledger: every run with its environment, backend, cases and metrics, in a database."""

from .difference import Difference
from .reporter import LedgerReporter
from .store import Ledger

__all__ = ["Difference", "Ledger", "LedgerReporter"]
