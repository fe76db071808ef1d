"""Compare training steps with eager PyTorch's: gradients, the losses of several steps, and the final state.

There are two ways to train: ``torch.compile`` with PyTorch's own optimizer, and whole steps of
:func:`torchstone.compile_step`. Both start from copies of one model and see the same batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from ..profiling.models import mean_square
from ..training import compile_step
from .subject import Subject

OPTIMIZERS: Mapping[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=1e-2, momentum=0.9),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=1e-3),
}
"""The optimizers that a suite can use, by name."""

UPDATE = "update of "
"""The prefix of the name of a parameter's change."""

Trainer = Callable[[], torch.Tensor]
"""A function that makes one update, and returns the loss before it."""


def eager_values(
    subject: Subject, optimizer: str, steps: int, autocast: AbstractContextManager[Any] | None = None
) -> dict[str, torch.Tensor]:
    """Train ``steps`` steps in eager PyTorch; return gradients, losses and the final state, by name.

    Without ``autocast`` the model runs in its own dtype.
    """
    return _trained(subject, optimizer, steps, autocast or nullcontext(), lambda own: own)


def compiled_values(
    subject: Subject,
    optimizer: str,
    steps: int,
    autocast: AbstractContextManager[Any],
    compiled: Callable[[Subject], Subject],
) -> dict[str, torch.Tensor]:
    """Return the values of :func:`eager_values`, through ``torch.compile`` and PyTorch's own optimizer."""
    return _trained(subject, optimizer, steps, autocast, compiled)


def step_values(
    subject: Subject, optimizer: str, steps: int, autocast: AbstractContextManager[Any]
) -> dict[str, torch.Tensor]:
    """Return the values of :func:`eager_values`, from whole steps of ``compile_step``."""
    own, before = OPTIMIZERS[optimizer](_parameters(subject)), _copied(subject)
    step = compile_step(subject.model, own, lambda model, batch: mean_square(model(*batch[0], **batch[1])))  # type: ignore[arg-type]
    batch = (tuple(subject.args), dict(subject.kwargs))
    with autocast:
        step.accumulate(batch)
        gradients = _gradients(subject)
        own.zero_grad()
        losses = [step(batch).detach().clone() for _ in range(steps)]
    return {**gradients, **_losses(losses), **dict(_left(subject, own, before))}


def scale_of(tensor: torch.Tensor) -> float | int:
    """Return a power of two, exact as a factor, that brings the largest element near 1; 1 for integers."""
    if not (tensor.is_floating_point() or tensor.is_complex()) or not tensor.numel():
        return 1
    largest = float(tensor.detach().abs().max())
    return 2.0 ** -math.frexp(largest)[1] if math.isfinite(largest) and largest else 1


def _trained(
    subject: Subject,
    optimizer: str,
    steps: int,
    autocast: AbstractContextManager[Any],
    prepare: Callable[[Subject], Subject],
) -> dict[str, torch.Tensor]:
    own, call = OPTIMIZERS[optimizer](_parameters(subject)), prepare(subject)
    before = _copied(subject)
    gradients: dict[str, torch.Tensor] = {}
    losses = []
    for turn in range(1 + steps):
        own.zero_grad()
        with autocast:
            loss = mean_square(call.result())
        loss.backward()
        if turn == 0:
            gradients = _gradients(subject)
            continue  # whole steps, too, give gradients once before the first update
        own.step()
        losses.append(loss.detach().clone())
    return {**gradients, **_losses(losses), **dict(_left(subject, own, before))}


def _parameters(subject: Subject) -> list[torch.Tensor]:
    assert isinstance(subject.model, torch.nn.Module)
    return [p for p in subject.model.parameters() if p.requires_grad]


def _gradients(subject: Subject) -> dict[str, torch.Tensor]:
    return {
        f"gradient of {name}": leaf.grad.to_dense().clone()
        for name, leaf in subject.leaves().items()
        if leaf.grad is not None
    }


def _losses(losses: list[torch.Tensor]) -> dict[str, torch.Tensor]:
    return {f"loss {turn}": loss for turn, loss in enumerate(losses)}


def _copied(subject: Subject) -> dict[str, torch.Tensor]:
    """Return copies of the current parameters."""
    assert isinstance(subject.model, torch.nn.Module)
    return {name: p.detach().clone() for name, p in subject.model.named_parameters()}


def _left(
    subject: Subject, optimizer: torch.optim.Optimizer, before: Mapping[str, torch.Tensor]
) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield parameters, their change, buffers and the optimizer's state after the last step."""
    assert isinstance(subject.model, torch.nn.Module)
    for name, p in subject.model.named_parameters():
        yield f"parameter {name}", p.detach()
        if p.requires_grad:
            yield UPDATE + name, p.detach() - before[name]
        for key, value in optimizer.state.get(p, {}).items():
            if isinstance(value, torch.Tensor):
                yield f"optimizer's {key} of {name}", value.detach().to_dense()
    for name, buffer in subject.buffers().items():
        yield f"buffer {name}", buffer
