"""What the tests of the redirection share."""

from __future__ import annotations

import sys

import pytest


@pytest.fixture(autouse=True)
def python_s_own_excepthook(monkeypatch: pytest.MonkeyPatch) -> None:
    """``torch.distributed`` replaces the hook for good, and tracebacks then start with the rank."""
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
