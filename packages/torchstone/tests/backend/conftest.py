"""Fixtures of the backend's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from torchstone.config import override


@pytest.fixture
def fresh_dynamo() -> Iterator[None]:
    """No code that another test has compiled is left."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def tuning(fresh_dynamo: None) -> Iterator[None]:
    """Choices are measured, of code that no other test has compiled."""
    with override(tuning=True):
        yield
