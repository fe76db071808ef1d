"""Fixtures of the backend's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from torchstone.config import override


@pytest.fixture
def fresh_dynamo() -> Iterator[None]:
    """Reset Dynamo before and after the test, so that it finds no code that another test compiled."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def tuning(fresh_dynamo: None) -> Iterator[None]:
    """Measure choices, with no code left that another test compiled."""
    with override(tuning=True):
        yield
