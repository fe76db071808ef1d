"""The passes of ``torch.compile`` for metadata, mutations, outputs and layouts, and their pipelines."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

from torch.fx import Graph, GraphModule, Node

from ..compiler.graphs import output_node, output_values
from ..compiler.passes import (
    add_results_of_checks,
    check_call_arguments,
    lower,
    require_lowerings,
    survey_operators,
)
from ..compiler.pipeline import Pass, Pipeline, Unit, compiler_pass
from ..compiler.support import UNKNOWN
from ..torch_internals import pytree
from ..torch_internals.fake import FakeTensor
from ..torch_internals.operators import namespace
from .layouts import Orders, arrange_layouts
from .options import Options
from .outputs import NO_ALIASING, Aliasing, Outputs, erase_unused_views, memory_owner, split_outputs
from .records import GraphRecord
from .unknown import is_unknown

aten = namespace("aten")


class Region(Unit):
    """The unit that ``torch.compile`` compiles: a static graph, or a part of one between eager operators.

    ``mutated`` maps the positions of inputs that the graph writes to their new values. ``outputs`` says how
    the caller's outputs are put together from the engine's. ``orders`` has the memory orders that are applied
    outside the engine.
    """

    def __init__(
        self,
        module: GraphModule,
        options: Options,
        record: GraphRecord,
        aliasing: Aliasing = NO_ALIASING,
    ) -> None:
        super().__init__(
            module, record.kind, check_indices=options.check_indices, check_values=options.check_values
        )
        self.options = options
        self.record = record
        self.aliasing = aliasing
        self.seconds = record.seconds
        self.mutated: dict[int, Node] = {}
        self.outputs = Outputs([], 0, [], [], [])
        self.orders = Orders()


@compiler_pass("complete-metadata", guarantees=["metadata"])
def complete_region(region: Region) -> None:
    """Add missing metadata to calls that PyTorch inserted, which save random state for checkpointing."""
    complete_metadata(region.module)


@compiler_pass("extract-mutations", needs=["metadata", "valid-arguments"], guarantees=["functional"])
def extract_region(region: Region) -> None:
    """Replace each write to an input by an extra output, which is written back after the call."""
    region.mutated = extract_mutations(region.module, region.aliasing.remade)
    region.aliasing = region.aliasing.behind(len(region.mutated))


@compiler_pass("split-outputs", needs=["functional", "metadata"], guarantees=["signature"])
def split_region(region: Region) -> None:
    """Leave to the engine only the outputs that it must compute: no inputs, constants or views."""
    region.outputs = split_outputs(region.module, region.aliasing, region.mutated)
    region.record.count(erase_unused_views(region.module))


@compiler_pass("arrange-layouts", needs=["signature", "lowerable"], guarantees=["layouts"])
def arrange_region(region: Region) -> None:
    """Pass dense tensors in another memory order without a copy, and permute their axes in the graph."""
    region.orders = arrange_layouts(region.module)


@compiler_pass(lower.name, needs=lower.needs, guarantees=lower.guarantees)
def lower_region(region: Region) -> None:
    """Build and verify the StableHLO of each call, if there is anything to compute."""
    if output_values(region.module):
        lower.run(region)


DIVIDING: Pipeline[Region] = Pipeline(
    [complete_region, check_call_arguments, extract_region, split_region, survey_operators]
)
"""The passes that prepare a graph before it is compiled, whole or in parts."""
DIVIDING_PART: Pipeline[Region] = Pipeline([split_region, survey_operators], given=["functional", "metadata"])
"""The passes that prepare one part of a graph that :data:`DIVIDING` prepared."""


def compiling(passes: Sequence[Pass[Unit]]) -> Pipeline[Region]:
    """Return the pipeline that lowers a graph as a whole to StableHLO; a user's ``passes`` come first."""
    return Pipeline(
        [require_lowerings, *passes, arrange_region, add_results_of_checks, lower_region],
        given=DIVIDING.guarantees,
    )


def complete_metadata(module: GraphModule) -> None:
    """Add ``val`` to nodes that PyTorch inserted without it, which save random state for checkpointing."""
    mode = None
    for node in module.graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, FakeTensor):
            mode = value.fake_mode
        if value is not None or node.op != "call_function" or mode is None:
            continue
        args, kwargs = pytree.tree_map_only(Node, lambda n: n.meta.get("val"), (node.args, node.kwargs))
        with mode:
            node.meta["val"] = node.target(*args, **kwargs)


def extract_mutations(module: GraphModule, remade: Container[int]) -> dict[int, Node]:
    """Replace each ``copy_(placeholder, value)`` by an extra output in front of the others.

    Returns the extra outputs by the positions of their placeholders. Everything in the graph that uses a
    placeholder uses its value from before the write. So an output that is a view of a written placeholder
    becomes a copy. Outputs in ``remade`` are an exception: the caller gets them as views of the input after
    the write.
    """
    graph = module.graph
    inputs = graph.find_nodes(op="placeholder")
    values = output_values(module)
    sources: dict[Node, Any] = {}
    for node in graph.find_nodes(op="call_function", target=aten.copy_.default):
        target, source = node.args[:2]
        if target.op == "placeholder":
            sources[target] = _fitted(graph, node, target, source)
            node.replace_all_uses_with(sources[target])
            values = [sources[target] if value is node else value for value in values]
            graph.erase_node(node)
    outputs = [*sources.values(), *values]
    output = output_node(module)
    with graph.inserting_before(output):
        for place, value in enumerate(outputs):
            if place - len(sources) in remade or not isinstance(value, Node):
                continue
            if memory_owner(value) in sources:
                outputs[place] = graph.call_function(aten.clone.default, (value,))
                outputs[place].meta = {**value.meta, "val": value.meta["val"].clone()}
    output.args = (tuple(outputs),)
    return {inputs.index(target): source for target, source in sources.items()}


def _fitted(graph: Graph, node: Node, target: Node, source: Any) -> Any:
    """Convert and broadcast ``source`` to ``target``'s dtype and shape, as ``copy_`` does."""
    want, have = target.meta["val"], source.meta["val"]
    with graph.inserting_before(node):
        if have.dtype != want.dtype:
            source = graph.call_function(aten._to_copy.default, (source,), {"dtype": want.dtype})
            source.meta["val"] = have = have.to(want.dtype)
        if is_unknown(node) or have.shape != want.shape:
            expanded = graph.call_function(aten.expand.default, (source, list(want.shape)))
            expanded.meta = {"val": want} | ({UNKNOWN: True} if is_unknown(node) else {})
            source = expanded
    return source
