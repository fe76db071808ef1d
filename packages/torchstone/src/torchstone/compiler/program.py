"""A program (a StableHLO module, its signature and weights) and the pipeline of an export, which makes it.

It runs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.export import ExportedProgram

from .. import hlo
from ..artifact import Artifact, Signature
from ..config import config
from ..errors import CaptureError
from .aliasing import check_example_aliasing
from .capture import capture
from .graphs import to_numpy
from .normalize import decomposed
from .passes import check_call_arguments, lowering_passes
from .pipeline import Pass, Pipeline, Unit, compiler_pass
from .signature import SignatureReader, Weights


@dataclass
class Program:
    """What ``export`` makes.

    ``weights`` maps the targets of the signature's parameter, buffer and
    constant inputs to tensors (shared with the model they came from).
    """

    module: hlo.Module
    signature: Signature
    weights: dict[str, torch.Tensor]
    graph_module: torch.fx.GraphModule

    def mlir_text(self, *, debug_info: bool = False) -> str:
        """The StableHLO module as text, with the user's source lines if ``debug_info``."""
        return self.module.text(debug_info=debug_info)

    def artifact(self, stablehlo_version: str = "current") -> Artifact:
        """Everything a consumer of that StableHLO version needs (see :func:`torchstone.hlo.resolve_version`).

        The weights are copies.
        """
        target = hlo.resolve_version(stablehlo_version)
        return Artifact(
            module=self.module.serialize(target),
            signature=replace(self.signature, stablehlo_version=target),
            weights={name: to_numpy(tensor).copy() for name, tensor in self.weights.items()},
        )


def build_program(
    model: torch.nn.Module | Callable[..., Any] | ExportedProgram,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    weights: Weights = "arguments",
    passes: Sequence[Pass[Unit]] = (),
) -> Program:
    """Capture ``model`` and take it through the pipeline, with ``passes`` of a user in it.

    Raises :class:`CaptureError`, :class:`PassError`, or :class:`UnsupportedOperators` with every
    operator that has no lowering.
    """
    if weights not in ("arguments", "constants"):
        raise CaptureError(f"weights={weights!r} is unknown", hint='use "arguments" or "constants"')
    pipeline = export_pipeline(passes)  # before the capture, which takes long
    export = Export(capture(model, args, kwargs, dynamic_shapes), weights)
    pipeline.run(export)
    return export.program()


def lower_program(exported: ExportedProgram, *, weights: Weights = "arguments") -> Program:
    """A normalized ``ExportedProgram`` as a program; raises :class:`UnsupportedOperators`."""
    export = Export(exported, weights)
    Pipeline(lowering_passes([read_signature]), given=NORMALIZED).run(export)
    return export.program()


def normalize(captured: ExportedProgram) -> ExportedProgram:
    """A functional program that calls only operators with a lowering, as far as decompositions reach.

    Raises :class:`CaptureError` where PyTorch finds no functional form, and for
    arguments that eager PyTorch refuses.
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

    def program(self) -> Program:
        """What the whole pipeline has made."""
        assert self.reader is not None
        signature = self.reader.signature(self.checks, seed=self.survey.seeded)
        return Program(self.built(), signature, self.reader.weights, self.module)


@compiler_pass("check-aliasing", guarantees=["independent-inputs"])
def check_aliasing(export: Export) -> None:
    """Raise CaptureError where the graph writes into an example input that shares memory with another."""
    check_example_aliasing(export.exported)


@compiler_pass("decompose", needs=["valid-arguments"], guarantees=["functional", "metadata"])
def decompose(export: Export) -> None:
    """Replace writes by values, and every overload that has no lowering by PyTorch's decomposition."""
    export.exported = decomposed(export.exported)
    export.module = export.exported.graph_module


@compiler_pass("read-signature", needs=["functional", "metadata"], guarantees=["signature"])
def read_signature(export: Export) -> None:
    """Describe inputs, outputs and mutations, and take the weights out of the exported program."""
    export.reader = reader = SignatureReader(export.exported, export.weights)
    export.name = type(export.module).__name__
    export.labels = {spec.name: spec.target or spec.name for spec in reader.inputs}
    export.baked = reader.baked
    export.results = [spec.name for spec in reader.outputs]


CAPTURED = ("metadata",)
NORMALIZED = ("metadata", "functional")
NORMALIZING: tuple[Pass[Export], ...] = (check_aliasing, check_call_arguments, decompose)


def export_pipeline(passes: Sequence[Pass[Unit]] = ()) -> Pipeline[Export]:
    """From a captured program to StableHLO."""
    return Pipeline([*NORMALIZING, *lowering_passes([read_signature, *passes])], given=CAPTURED)
