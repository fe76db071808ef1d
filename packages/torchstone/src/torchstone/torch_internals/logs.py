"""Silence what PyTorch prints and logs about failures that Torchstone raises as one error."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .patches import attributes, for_tracing_thread, patched, tracing
from .probing import Internal

_SIZES = "torch.fx.experimental.symbolic_shapes"
_export = Internal("torch.export._trace", "exporting")


@contextmanager
def quiet(name: str) -> Iterator[None]:
    """Drop the records that this thread logs to the logger ``name`` inside the block."""
    logger, thread = logging.getLogger(name), threading.get_ident()

    def elsewhere(record: logging.LogRecord) -> bool:
        return record.thread != thread

    logger.addFilter(elsewhere)
    try:
        yield
    finally:
        logger.removeFilter(elsewhere)


@contextmanager
def without_dumps() -> Iterator[None]:
    """Suppress the graph that ``torch.export`` prints when it fails, and its log records about symbols."""

    def nothing(*_: Any, **__: Any) -> None:
        return None

    with (
        tracing(),
        quiet(_SIZES),
        patched(attributes(_export.get(), print=for_tracing_thread(nothing, print))),
    ):
        yield
