"""The XLA options that programs are compiled with on XLA's CPU, and the rewrites of modules for it.

Both are part of a compilation by the PJRT engine. Portable artifacts are not changed.
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
    late_activations,
    late_buffers,
    late_copies,
    reductions,
    shared_sums,
    workarounds,
)
from .engine import XlaValue

VERSION = 13
"""Part of the compilation cache's keys: increase it whenever the result of :func:`rewrite` changes."""

OPTIONS: Mapping[str, XlaValue] = {
    # YNN, XLA's library of kernels, is faster for matrix products and reductions, and slower for most
    # convolutions and for elementwise work.
    "xla_cpu_experimental_ynn_fusion_type": ",".join(
        f"LIBRARY_FUSION_TYPE_{kind}" for kind in ("DOT", "INDIVIDUAL_DOT", "REDUCE")
    ),
}
"""XLA options of every program on the embedded CPU, unless overridden.

XLA's own defaults keep the semantics strict: no fast math, NaN propagates, and
bfloat16 and float16 are rounded after each operation. But XLA fuses a
multiplication and an addition to one operation, and flushes subnormal results to
zero. It would also rewrite constants and quotients; :mod:`.as_written` prevents that.
"""
SAVING_OPTIONS: Mapping[str, XlaValue] = {
    "xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED",
    "xla_cpu_enable_concurrency_optimized_scheduler": False,  # its name in earlier versions
}
"""Additional options if the setting ``save_memory`` or the compilation's options ask for them.

By default XLA orders operations so that many can run at once, which keeps all of their values in memory.
"""


def rewrite(module: Any, *, saving: bool = False) -> None:
    """Rewrite a parsed module to an equivalent one that XLA's CPU compiler compiles correctly and faster.

    With ``saving``, the program also keeps fewer values.
    """
    with _jaxlib.ir.Location.unknown():
        workarounds.for_xla_cpu(module)
        folded_transposes.fold(module)
        in_place.order_updates(module)
        grouped_products.compute_grouped(module)
        shared_sums.compute_once(module)
        if _jaxlib.operations(module, "stablehlo.convolution"):
            channels_last.assign(module)
        late_copies.make_late(module)
        late_buffers.make_late(module)
        if saving:
            late_activations.make_late(module)
        reductions.keep_from_ynn(module)
        as_written.keep_arithmetic(module)
    module.operation.verify()
