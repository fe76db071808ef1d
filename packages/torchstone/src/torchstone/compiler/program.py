"""A program (a StableHLO module, its signature and weights) and the pipeline of an export that makes it.

Nothing here runs a program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.export import ExportedProgram

from .. import hlo
from ..artifact import Artifact
from ..config import config
from ..errors import CaptureError, PassError, described
from ..lowering.groups import ranks_together
from ..sharding import Mesh
from ..signature import Signature
from .aliasing import (
    check_example_aliasing,
    check_resized_outputs,
    check_shared_state,
    check_strided_reads,
    check_strides,
    check_written_constants,
)
from .bounded import Bounded, NoForm, bounded, unknown_symbols
from .capture import capture
from .graphs import to_numpy
from .normalize import decomposed
from .passes import check_call_arguments, lowering_passes
from .pipeline import Pass, Pipeline, Unit, compiler_pass
from .placement import check_mesh, for_ranks, placed, placement
from .signature import SignatureReader, Weights, next_values
from .small_sizes import with_small_sizes
from .support import NO_FORM


@dataclass
class Program:
    """The result of an export.

    ``weights`` maps the targets of the signature's parameter, buffer and
    constant inputs to tensors, which share memory with the model.
    """

    module: hlo.Module
    signature: Signature
    weights: dict[str, torch.Tensor]
    graph_module: torch.fx.GraphModule

    def mlir_text(self, *, debug_info: bool = False) -> str:
        """Return the StableHLO module as text, with the user's source lines if ``debug_info``."""
        return self.module.text(debug_info=debug_info)

    def artifact(self, stablehlo_version: str = "current", *, share_weights: bool = False) -> Artifact:
        """Return an artifact for a StableHLO version (see :func:`torchstone.hlo.resolve_version`).

        The weights are copies unless ``share_weights``. Then they share the model's memory.
        """
        return self.with_weights(weight_arrays(self.weights, shared=share_weights), stablehlo_version)

    def with_weights(self, weights: Mapping[str, Any], stablehlo_version: str = "current") -> Artifact:
        """Return an artifact like :meth:`artifact`, with the given NumPy arrays as weights."""
        target = hlo.resolve_version(stablehlo_version)
        signature = replace(self.signature, stablehlo_version=target)
        return Artifact(self.module.serialize(target), signature, dict(weights))


def weight_arrays(weights: Mapping[str, torch.Tensor], *, shared: bool = False) -> dict[str, Any]:
    """Return ``weights`` as NumPy arrays, which are copies unless ``shared``.

    Tensors that are the same memory, such as tied weights, become a single array.
    """
    made: dict[Any, Any] = {}
    arrays = {}
    for name, tensor in weights.items():
        array = to_numpy(tensor)
        memory = (array.__array_interface__["data"][0], array.shape, array.dtype) if array.size else name
        if memory not in made:
            # The array is kept, so that its address is not used again.
            made[memory] = array, array if shared else array.copy()
        arrays[name] = made[memory][1]
    return arrays


def build_program(
    model: torch.nn.Module | Callable[..., Any] | ExportedProgram,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    weights: Weights = "arguments",
    passes: Sequence[Pass[Unit]] = (),
    mesh: Mesh | None = None,
    shardings: Mapping[str, Any] | None = None,
) -> Program:
    """Capture ``model`` and run the export pipeline on it, with the user's ``passes``.

    Raises :class:`CaptureError`, :class:`PassError`, :class:`ShardingError`, or
    :class:`UnsupportedOperators` with every operator that has no lowering.
    """
    check_mesh(mesh, shardings)
    if weights not in ("arguments", "constants"):
        raise CaptureError(f"weights={weights!r} is unknown", hint='use "arguments" or "constants"')
    pipeline = export_pipeline(passes)  # before the capture, which takes long
    export = Export(capture(model, args, kwargs, dynamic_shapes), weights)
    export.mesh, export.shardings = mesh, shardings or {}
    with ranks_together():
        pipeline.run(export)
    program = export.program()
    signature = with_small_sizes(program.signature, model, args, kwargs or {})
    return replace(program, signature=signature)


def lower_program(exported: ExportedProgram, *, weights: Weights = "arguments") -> Program:
    """Lower a normalized ``ExportedProgram``; raises :class:`UnsupportedOperators` if it does not lower."""
    export = Export(exported, weights)
    Pipeline(lowering_passes([read_signature]), given=NORMALIZED).run(export)
    return export.program()


def normalize(captured: ExportedProgram) -> ExportedProgram:
    """Return a functional program that calls only operators with a lowering, as far as decompositions reach.

    Raises :class:`CaptureError` if PyTorch finds no functional form, or if eager PyTorch
    refuses the arguments of a call.
    """
    export = Export(captured)
    Pipeline(NORMALIZING, given=CAPTURED).run(export)
    return export.exported


class Export(Unit):
    """The unit of an export. ``exported`` is the program that ``module`` belongs to."""

    def __init__(self, captured: ExportedProgram, weights: Weights = "arguments") -> None:
        super().__init__(
            captured.graph_module,
            check_indices=config.check_indices,
            check_values=config.check_values,
        )
        self.exported = captured
        self.weights = weights
        self.reader: SignatureReader | None = None
        self.bounded: Bounded | None = None
        self.mesh: Mesh | None = None
        self.shardings: Mapping[str, Any] = {}

    def program(self) -> Program:
        """Return the program, after the whole pipeline has run."""
        assert self.reader is not None
        bounds = None if self.bounded is None else self.bounded.bounds
        signature = self.reader.signature(self.checks, seed=self.survey.seeded, bounds=bounds)
        if self.placement is not None:
            signature = placed(signature, self.placement)
        module = self.built()
        signature = for_ranks(signature, module.ranks, self.mesh)
        return Program(module, signature, self.reader.weights, self.module)


@compiler_pass("check-aliasing", guarantees=["independent-inputs"])
def check_aliasing(export: Export) -> None:
    """Raise CaptureError if the graph depends on how its tensors lie in memory.

    Such a graph writes into memory that inputs share, resizes shared memory, or reads memory with gaps
    by strides.
    """
    check_written_constants(export.exported)
    check_shared_state(export.exported)
    check_example_aliasing(export.exported)
    check_resized_outputs(export.exported)
    check_strided_reads(export.exported)
    check_strides(export.exported)


@compiler_pass("decompose", needs=["valid-arguments"], guarantees=["functional", "metadata"])
def decompose(export: Export) -> None:
    """Replace operators that write by functional ones, and those without a lowering by decompositions."""
    export.exported = decomposed(export.exported)
    export.module = export.exported.graph_module


@compiler_pass("bound-sizes", needs=["functional", "metadata"], guarantees=["bounded"])
def bound_sizes(export: Export) -> None:
    """Pad tensors whose sizes depend on values to the largest sizes possible, and compute the true sizes."""
    if not unknown_symbols(export.exported):
        return
    try:
        export.bounded = bounded(export.exported)
    except NoForm as error:
        reason, node = error.args
        node.meta[NO_FORM] = reason
    else:
        export.module, export.checks = export.bounded.module, list(export.bounded.checks)


@compiler_pass("read-signature", needs=["functional", "metadata"], guarantees=["signature"])
def read_signature(export: Export) -> None:
    """Describe inputs, outputs and mutations, and collect the weights of the exported program."""
    export.reader = reader = SignatureReader(export.exported, export.weights)
    export.name = type(export.module).__name__
    export.labels = {spec.name: spec.target or spec.name for spec in reader.inputs}
    export.baked = reader.baked
    export.results = [spec.name for spec in reader.outputs]
    if export.bounded is not None:
        export.results += [f"size_{symbol}" for symbol in export.bounded.bounds]
        export.results += [f"{check.kind}{i}" for i, check in enumerate(export.bounded.checks)]
    export.next_values = next_values(reader.inputs, reader.outputs)


@compiler_pass("place", needs=["signature"], guarantees=["placement"])
def place_on_mesh(export: Export) -> None:
    """Decide how arguments and results lie on the mesh, if the program is for a mesh."""
    assert export.reader is not None
    if export.mesh is not None:
        export.placement = placement(
            export.mesh, export.shardings, export.reader.inputs, export.reader.outputs
        )


CAPTURED = ("metadata",)
NORMALIZED = ("metadata", "functional")
NORMALIZING: tuple[Pass[Export], ...] = (check_aliasing, check_call_arguments, decompose, bound_sizes)


def export_pipeline(passes: Sequence[Pass[Unit]] = ()) -> Pipeline[Export]:
    """Return the pipeline from a captured program to StableHLO, with the user's ``passes``."""
    if not isinstance(passes, Iterable):
        raise PassError(f"passes is {described(passes)}, not a list of passes")
    between: list[Pass[Any]] = [read_signature, place_on_mesh, *passes]
    return Pipeline([*NORMALIZING, *lowering_passes(between)], given=CAPTURED)
