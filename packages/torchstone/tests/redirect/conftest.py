"""Fixtures that the tests of the redirection share."""

from __future__ import annotations

import sys

import pytest
import torch


@pytest.fixture(autouse=True)
def python_s_own_excepthook(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undo the hook that ``torch.distributed`` sets for good: its tracebacks start with the rank."""
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)


@pytest.fixture(autouse=True)
def backend_flags_can_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow setting flags: importing ``torch.testing._internal.common_utils`` freezes ``torch.backends``."""
    monkeypatch.setitem(torch.backends.flags_frozen.__globals__, "__allow_nonbracketed_mutation_flag", True)
