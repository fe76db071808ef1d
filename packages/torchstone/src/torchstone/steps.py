"""``export_step``: a whole training step as an artifact."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .program import Program
from .sharding import Mesh

if TYPE_CHECKING:
    import torch

    from .compiler.pipeline import Pass, Unit
    from .training.recipe import NonFinite


def export_step(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    loss_fn: Callable[..., Any],
    batch: Sequence[Any],
    *,
    clip_norm: float | None = None,
    clip_value: float | None = None,
    scaler: torch.amp.GradScaler | None = None,
    average: torch.optim.swa_utils.AveragedModel | None = None,
    nonfinite: NonFinite = "update",
    stablehlo_version: str = "current",
    engine: str | None = None,
    device: str | None = None,
    passes: Sequence[Pass[Unit]] = (),
    mesh: Mesh | None = None,
    shardings: Mapping[str, Any] | None = None,
) -> Program:
    """Export forward, loss, backward and optimizer update as one portable program with named state.

    ``batch`` is an example: ``(inputs, targets)`` for ``loss_fn(model(inputs), targets)``, or ``(batch,)``
    for ``loss_fn(model, batch)``. The program takes the same, returns what ``loss_fn`` returns, and
    updates its state. It begins with a copy of the present state of the model and the optimizer, and
    never changes these; accumulated gradients are not part of the state.

    ``program.state()`` has parameters and buffers under their names, an optimizer's tensors as
    ``optimizer.state.<parameter>.<name>``, and its numbers, 0-d and float64, as
    ``optimizer.param_groups.<i>.<name>``: ``program.load_state({"optimizer.param_groups.0.lr": 1e-4})``
    changes the learning rate. Numbers that the optimizer's code branches on are constants.

    The arguments ``clip_norm`` to ``nonfinite`` are those of :func:`~torchstone.compile_step`, without
    ``"raise"``. The other arguments are those of :func:`~torchstone.export`. On a mesh, optimizer state that
    has its parameter's shape is split like the parameter. Raises
    :class:`~torchstone.errors.TrainingError` for steps that cannot be one program, and the errors of
    :func:`~torchstone.export`.
    """
    from .errors import TrainingError
    from .training.exported import build_step
    from .training.recipe import Recipe

    if nonfinite == "raise":
        raise TrainingError(
            'a program cannot raise for values: nonfinite="raise" is for compile_step',
            hint='use nonfinite="skip", and look at the loss',
        )
    recipe = Recipe(model, optimizer, loss_fn, clip_norm, clip_value, scaler, average, nonfinite=nonfinite)
    source = build_step(recipe, batch, passes=passes, mesh=mesh, shardings=shardings)
    return Program(source.artifact(stablehlo_version), engine=engine, device=device, source=source)
