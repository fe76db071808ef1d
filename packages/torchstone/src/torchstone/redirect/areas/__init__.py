"""The names that are replaced while a scope is open: one table of rows for each area of PyTorch."""

from __future__ import annotations

from ..rows import Row
from . import (
    accelerator,
    amp,
    backends,
    communication,
    compiling,
    data,
    device,
    distributed,
    graphs,
    kernels,
    legacy,
    loading,
    memory,
    meshes,
    messages,
    modules,
    nested,
    profiling,
    random,
    saving,
    sending,
    streams,
    threads,
    torchscript,
)

_AREAS = (
    *(device, accelerator, memory, random, streams, graphs, legacy, modules, amp, loading, data),
    *(
        distributed,
        meshes,
        sending,
        communication,
        profiling,
        backends,
        compiling,
        nested,
        kernels,
        torchscript,
    ),
    *(messages, saving, threads),
)

ROWS: tuple[Row, ...] = tuple(row for area in _AREAS for row in area.ROWS)
