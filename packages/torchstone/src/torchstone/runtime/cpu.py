"""What programs are compiled with on XLA's CPU: options, and how modules are rewritten for it.

Portable artifacts are not touched: this is part of a compilation by the PJRT engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import (
    _jaxlib,
    as_written,
    channels_last,
    folded_transposes,
    grouped_products,
    in_place,
    late_copies,
    reductions,
    shared_sums,
    workarounds,
)
from .engine import XlaValue

VERSION = 10
"""Part of the compilation cache's keys: raise it with every change of what :func:`rewrite` makes."""

OPTIONS: Mapping[str, XlaValue] = {
    # YNN, XLA's library of kernels, is faster for matrix products and reductions, and slower for most
    # convolutions and for elementwise work.
    "xla_cpu_experimental_ynn_fusion_type": ",".join(
        f"LIBRARY_FUSION_TYPE_{kind}" for kind in ("DOT", "INDIVIDUAL_DOT", "REDUCE")
    ),
}
"""XLA options of every program on the embedded CPU, unless overridden.

XLA's own defaults keep the semantics strict: no fast math, NaN propagates, and
bfloat16 and float16 are rounded after each operation. But it contracts a
multiplication and an addition, and flushes subnormal results to zero. What it
would make of constants and quotients is prevented (:mod:`.as_written`).
"""
SAVING_OPTIONS: Mapping[str, XlaValue] = {
    "xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED",
    "xla_cpu_enable_concurrency_optimized_scheduler": False,  # its name in earlier versions
}
"""Further ones where the setting ``save_memory`` or the compilation's options ask for them.

XLA's own order of operations lets many run at once, and keeps all of their values.
"""


def rewrite(module: Any) -> None:
    """Change a parsed module to the same program as XLA's CPU compiler makes the most of it."""
    with _jaxlib.ir.Location.unknown():
        workarounds.for_xla_cpu(module)
        folded_transposes.fold(module)
        in_place.order_updates(module)
        grouped_products.compute_grouped(module)
        shared_sums.compute_once(module)
        if _jaxlib.operations(module, "stablehlo.convolution"):
            channels_last.assign(module)
        late_copies.make_late(module)
        reductions.keep_from_ynn(module)
        as_written.keep_arithmetic(module)
    module.operation.verify()
