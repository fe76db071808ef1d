"""Compiles a Dynamo graph to forward and backward functions.

AOTAutograd traces the joint graph with the registry's decompositions,
partitions it (min-cut) and hands each part to :func:`_compile_part`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from torch.fx import GraphModule

from ..compiler.graphs import first_line
from ..compiler.normalize import decompositions, factorization_checks
from ..compiler.operators.changing_numbers import expanding
from ..compiler.operators.onednn import choosing
from ..compiler.operators.tracing import mended_operators, passing_value_checks
from ..errors import DoubleBackward
from ..runtime import get_engine
from ..torch_internals.dynamo import (
    OutputType,
    SubclassCreationMeta,
    TracingContext,
    aot_autograd,
    differentiable_once,
    min_cut_partition,
    without_restart,
)
from ..torch_internals.patches import patched
from .batched import Batchable
from .effects import Effects
from .measured import EagerFunction, measured
from .options import Options
from .outputs import NO_ALIASING, Aliasing, Remade
from .part import Run
from .passes import compiling
from .records import GraphRecord, publish
from .recurrent_layers import chooser
from .region import compile_region
from .saved import save_channels_last, take_as_given
from .sharing import HeedingMemory
from .specialize import SpecializingRegion, is_symbolic
from .unknown import UnknownSizes


def compile_graph(module: GraphModule, example_inputs: Sequence[Any], options: Options) -> Callable[..., Any]:
    """Return the function that ``torch.compile`` calls instead of ``module``."""
    compiling(options.passes)  # raises if the passes do not fit together, before anything is traced
    records: list[GraphRecord] = []
    effects, unknown = Effects(module), UnknownSizes()

    def partition(joint: GraphModule, *arguments: Any, **settings: Any) -> Any:
        effects.note(joint)
        return min_cut_partition(joint, *arguments, **settings)

    compiler = aot_autograd(
        fw_compiler=partial(_compile_part, "forward", options, records, effects, unknown),
        bw_compiler=partial(_compile_part, "backward", options, records, effects, unknown),
        inference_compiler=partial(_compile_part, "inference", options, records, effects, unknown),
        partition_fn=partition,
        decompositions=expanding(decompositions(training=True)),
        keep_inference_input_mutations=True,
    )
    with (
        factorization_checks(kept=options.check_values),
        passing_value_checks(),
        mended_operators(),
        choosing(chooser(options)),
        patched(
            *differentiable_once(partial(_refuse_second_derivative, first_line(module))),
            *without_restart(module.graph),
        ),
    ):
        compiled = compiler(module, example_inputs)
    run = measured(compiled, module, options, records, effects)
    if len(example_inputs) < 2 or (effects.written is not None and not effects.written):
        return run
    only_compiled = not options.fallback or options.check_indices or options.check_values or options.passes
    return HeedingMemory(
        run,
        EagerFunction(module),
        example_inputs,
        effects.written,
        symbolic=is_symbolic(module),
        fallback=not only_compiled,
    )


def _refuse_second_derivative(line: str) -> None:
    raise DoubleBackward(
        f"gradients of the compiled function{line} were asked for with create_graph=True, "
        "and a compiled function can be differentiated once",
        hint="do not compile what is differentiated twice, or compile all of it as one step: "
        "torchstone.compile_step takes torch.autograd.grad(…, create_graph=True) in its loss_fn",
    )


def _compile_part(
    kind: str,
    options: Options,
    records: list[GraphRecord],
    effects: Effects,
    unknown: UnknownSizes,
    module: GraphModule,
    inputs: Sequence[Any],
) -> Callable[..., Any]:
    """Compile one graph that AOTAutograd hands over to a boxed function, which takes a list of its inputs."""
    record = GraphRecord(kind)
    records.append(record)
    started = time.perf_counter()
    region: Run
    batchable = Batchable(module) if kind == "backward" else None
    metadata = _metadata(kind)
    effects.note(module, metadata)
    aliasing = _aliasing(metadata)
    unknown.mark(module)
    if is_symbolic(module):
        region = SpecializingRegion(module, options, record, aliasing)
    else:
        _arrange_saved(kind, options, module, inputs)
        static = [] if metadata is None else metadata.static_input_indices
        static = [index for index in static if index < len(inputs)]  # parameters and buffers
        region = compile_region(module, options, record, aliasing, static)
    record.compile_s = time.perf_counter() - started
    publish(record)

    if batchable is not None:
        batchable.run, region = region, batchable
    region._boxed_call = True  # type: ignore[attr-defined]
    return region


def _arrange_saved(kind: str, options: Options, module: GraphModule, inputs: Sequence[Any]) -> None:
    """Choose the memory order of the tensors that a forward graph saves for its backward graph.

    For a forward graph on an engine that computes with channels last, tell AOTAutograd the strides that were
    chosen. For a backward graph, use the strides of ``inputs``, which may differ from the traced ones.
    """
    if kind == "backward":
        take_as_given(module, inputs)
    context = TracingContext.get().try_get()
    if kind != "forward" or context is None or context.output_strides is None:
        return
    if getattr(get_engine(options.engine, options.device), "channels_last", False):
        saved = context.fw_metadata.tensors_saved_for_backwards_slice
        context.output_strides.extend(save_channels_last(module, saved))


def _metadata(kind: str) -> Any:
    """Return AOTAutograd's metadata of inputs and outputs; None for a backward graph or outside a trace."""
    context = TracingContext.get().try_get()
    return None if kind == "backward" or context is None else context.fw_metadata


def _aliasing(metadata: Any) -> Aliasing:
    """Return which outputs of the graph AOTAutograd makes anew as views, and which it writes to inputs."""
    if metadata is None:
        return NO_ALIASING
    subclass_metadata, kinds = SubclassCreationMeta.get(), OutputType.get()
    if any(isinstance(one, subclass_metadata) for one in metadata.subclass_inp_meta):
        return NO_ALIASING
    tokens = len(metadata.tokens)
    first = tokens + metadata.num_mutated_inp_runtime_indices
    remade = {}
    for place, info in enumerate(metadata.output_info, start=first):
        base = info.base_idx or 0  # None for outputs that are not aliases
        match info.output_type:
            case kinds.alias_of_input | kinds.is_input:
                remade[place] = Remade(True, tokens + base)
            case kinds.alias_of_intermediate | kinds.alias_of_intermediate_save_as_output:
                remade[place] = Remade(False, first + metadata.num_outputs + base)
            case kinds.alias_of_intermediate_base_is_user_output:
                remade[place] = Remade(False, first + base)
    for position in {one.position for one in remade.values() if not one.of_input}:
        remade.pop(position, None)  # it is the base of another output, so AOTAutograd needs the output itself
    written = enumerate(metadata.mutated_inp_runtime_indices, start=tokens)
    return Aliasing(remade, {tokens + position: output for output, position in written})
