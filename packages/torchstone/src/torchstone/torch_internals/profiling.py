"""The state of PyTorch's profiler, and Dynamo's records of compilations."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from operator import attrgetter
from typing import Any

from .probing import Internal

_profiler = Internal("torch.autograd.profiler", "torch.profiler")
_metrics = Internal("torch._dynamo.utils.get_compilation_metrics", "profiles of torch.compile")

# Implemented entirely in C, because it runs on each call of a compiled program.
is_profiling = partial(attrgetter("_is_profiler_enabled"), _profiler.get())
"""Whether ``torch.profiler`` is recording now."""


def compilations(since: float) -> Sequence[Any]:
    """Return Dynamo's records of frames that it began to compile after ``since``, in ``time.time()`` seconds.

    Dynamo keeps a limited number of records. The result is empty if Dynamo is not loaded.
    """
    if "torch._dynamo" not in sys.modules:
        return []
    return [one for one in _metrics() if one.start_time is not None and one.start_time >= since]
