"""The front door: ``export``, ``load`` and ``explain``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from .artifact import load_artifact
from .program import Program
from .sharding import Mesh

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

    from .compiler.explanation import Explanation
    from .compiler.pipeline import Pass, Unit

__all__ = ["Program", "explain", "export", "load"]


def export(
    model: torch.nn.Module | Callable[..., Any] | ExportedProgram,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    weights: Literal["arguments", "constants"] = "arguments",
    share_weights: bool = False,
    stablehlo_version: str = "current",
    engine: str | None = None,
    device: str | None = None,
    passes: Sequence[Pass[Unit]] = (),
    mesh: Mesh | None = None,
    shardings: Mapping[str, Any] | None = None,
) -> Program:
    """Compile ``model`` to a portable StableHLO program.

    ``args`` and ``kwargs`` are example inputs, ``dynamic_shapes`` is what ``torch.export`` takes. For
    each dynamic size that may be 0 or 1, the model runs in eager PyTorch with that size; the program
    refuses the sizes for which eager PyTorch fails. ``weights="constants"`` bakes parameters into the
    module. Other weights are copied, unless ``share_weights`` is true: then the program uses the model's
    memory. This saves the memory of a second copy, but writing to the model's weights may change the
    program. ``passes``, made with :func:`torchstone.graph_pass`, change the graph before it is lowered.
    With ``mesh`` the program runs on several devices; ``shardings`` maps names of parameters, buffers
    and inputs, or patterns of names, to partition specs (docs: Sharding).
    Raises :class:`~torchstone.errors.CaptureError`, :class:`~torchstone.errors.PassError`,
    :class:`~torchstone.errors.ShardingError` and
    :class:`~torchstone.errors.UnsupportedOperators` (all of them at once).
    """
    from .compiler import build_program

    source = build_program(
        model,
        args,
        kwargs,
        dynamic_shapes=dynamic_shapes,
        weights=weights,
        passes=passes,
        mesh=mesh,
        shardings=shardings,
    )
    artifact = source.artifact(stablehlo_version, share_weights=share_weights)
    return Program(artifact, engine=engine, device=device, source=source)


def load(path: str | Path, *, engine: str | None = None, device: str | None = None) -> Program:
    """Load the program saved at ``path``; needs no torch.

    Raises :class:`~torchstone.errors.ArtifactError` unless the file is a complete,
    unaltered artifact of a known version. Nothing in the file is executed
    before the first call.
    """
    return Program(load_artifact(path), engine=engine, device=device)


def explain(
    model: torch.nn.Module | Callable[..., Any] | ExportedProgram,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    passes: Sequence[Pass[Unit]] = (),
    trace: bool = False,
) -> Explanation:
    """Report which parts of ``model`` compile and which do not, where, and why; print the result.

    With ``trace`` the report has the graph after each compiler pass; the last one is StableHLO. ``passes``
    are those that :func:`export` would get.
    """
    from .compiler import explain as explain_program

    return explain_program(model, args, kwargs, dynamic_shapes=dynamic_shapes, passes=passes, trace=trace)
