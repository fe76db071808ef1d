"""Fixtures of the backend's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from torchstone.config import override


@pytest.fixture
def tuning() -> Iterator[None]:
    """Choices are measured, and no code that another test has compiled is left."""
    torch._dynamo.reset()
    with override(tuning=True):
        yield
    torch._dynamo.reset()
