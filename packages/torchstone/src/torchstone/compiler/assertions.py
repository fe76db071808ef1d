"""Assertions about values that become part of a traced graph, with ``config.check_values``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch

from ..torch_internals.tensors import assert_async

_ASSERTING: ContextVar[bool] = ContextVar("asserting", default=False)


@contextmanager
def asserting(on: bool) -> Iterator[None]:
    """Inside, :func:`require` adds its assertions to the traced graph if ``on``."""
    token = _ASSERTING.set(on)
    try:
        yield
    finally:
        _ASSERTING.reset(token)


def require(holds: Callable[[], torch.Tensor], says: str) -> None:
    """Trace an assertion if values are checked. For expansions of operators that check values.

    Does nothing under Dynamo, which traces capture rules itself.
    """
    if not torch.compiler.is_dynamo_compiling() and _ASSERTING.get():
        assert_async(holds().all(), says)
