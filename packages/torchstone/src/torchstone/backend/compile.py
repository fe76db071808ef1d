"""From a Dynamo graph to compiled forward and backward functions.

AOTAutograd traces the joint graph with the registry's decompositions,
partitions it (min-cut) and hands each part to :func:`_compile_part`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from torch.fx import GraphModule

from ..compiler.normalize import (
    decompositions,
    mended_operators,
    passing_value_checks,
    without_factorization_checks,
)
from ..torch_internals.dynamo import TracingContext, aot_autograd, min_cut_partition
from .options import Options
from .records import GraphRecord, publish
from .region import Run, compile_region
from .specialize import SpecializingRegion, is_symbolic


def compile_graph(module: GraphModule, example_inputs: Sequence[Any], options: Options) -> Callable[..., Any]:
    """The function that ``torch.compile`` calls instead of ``module``."""
    compiler = aot_autograd(
        fw_compiler=partial(_compile_part, "forward", options),
        bw_compiler=partial(_compile_part, "backward", options),
        inference_compiler=partial(_compile_part, "inference", options),
        partition_fn=min_cut_partition.get(),
        decompositions=decompositions(training=True),
        keep_inference_input_mutations=True,
    )
    with without_factorization_checks(), passing_value_checks(), mended_operators():
        return compiler(module, example_inputs)


def _compile_part(
    kind: str, options: Options, module: GraphModule, inputs: Sequence[Any]
) -> Callable[..., Any]:
    """One graph that AOTAutograd hands over, as a boxed function over a list of its inputs."""
    record = GraphRecord(kind)
    started = time.perf_counter()
    region: Run
    if is_symbolic(module):
        region = SpecializingRegion(module, options, record)
    else:
        region = compile_region(module, options, record, static=_static_inputs(kind, len(inputs)))
    record.compile_s = time.perf_counter() - started
    publish(record)

    region._boxed_call = True  # type: ignore[attr-defined]
    return region


def _static_inputs(kind: str, count: int) -> list[int]:
    """Positions of parameters and buffers, whose memory stays from call to call."""
    context = TracingContext.get().try_get()
    metadata = context.fw_metadata if context is not None else None
    if kind == "backward" or metadata is None:
        return []
    return [index for index in metadata.static_input_indices if index < count]
