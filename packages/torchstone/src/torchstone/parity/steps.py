"""Compare training steps with eager PyTorch's: gradients, the losses of several steps, and the final state.

There are two ways to train: ``torch.compile`` with PyTorch's own optimizer, and whole steps of
:func:`torchstone.compile_step`. Both start from copies of one model and see the same batch.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from ..profiling.models import mean_square
from ..torch_internals import pytree
from ..training import compile_step
from .subject import Subject

OPTIMIZERS: Mapping[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=1e-2, momentum=0.9),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=1e-3),
}
"""The optimizers that a suite can use, by name."""

UPDATE = "update of "
"""The prefix of the name of a parameter's change."""

Values = dict[str, torch.Tensor]
"""Values of training by name: gradients, losses, and what the last step left."""


@dataclass(frozen=True)
class State:
    """A copy of all that a training step starts from.

    ``step`` counts from 0. ``tensors`` has the parameters and buffers by name. ``optimizer`` is the part
    ``"state"`` of the optimizer's ``state_dict``, without its settings. ``generator`` is the state of
    PyTorch's generator on the CPU.
    """

    step: int
    tensors: Mapping[str, torch.Tensor]
    optimizer: Mapping[str, Any]
    generator: torch.Tensor

    @classmethod
    def of(cls, step: int, subject: Subject, optimizer: torch.optim.Optimizer) -> State:
        """Copy the current state, also out of the memory of an engine."""
        own = optimizer.state_dict()["state"]
        kept = pytree.tree_map_only(torch.Tensor, lambda one: one.detach().clone(), own)
        tensors = {name: one.detach().clone() for name, one in _tensors(subject).items()}
        return cls(step, tensors, kept, torch.get_rng_state())

    def given_to(self, subject: Subject) -> Subject:
        """Write the parameters and buffers into ``subject``, in its own dtypes, and return it."""
        with torch.no_grad():
            for name, one in _tensors(subject).items():
                one.copy_(self.tensors[name])
        return subject


Watch = Callable[[State, Values], None]
"""Called after each step with the state before it, and the values of this step alone.

The gradients, which are taken before the first step, are among the values of that step.
"""


def eager_values(
    subject: Subject, optimizer: str, steps: int, autocast: AbstractContextManager[Any] | None = None
) -> Values:
    """Train ``steps`` steps in eager PyTorch; return gradients, losses and the final state, by name.

    Without ``autocast`` the model runs in its own dtype.
    """
    return _trained(subject, optimizer, steps, autocast or nullcontext(), lambda own: own)


def eager_step(
    subject: Subject, optimizer: str, state: State, autocast: AbstractContextManager[Any] | None = None
) -> Values:
    """Make one step in eager PyTorch from ``state``; return the values that a :data:`Watch` gets.

    ``subject`` has the parameters and buffers already (:meth:`State.given_to`). The global generator is left
    as it was.
    """
    with torch.random.fork_rng(devices=[]):
        torch.set_rng_state(state.generator)
        return _trained(subject, optimizer, 1, autocast or nullcontext(), lambda own: own, state=state)


def compiled_values(
    subject: Subject,
    optimizer: str,
    steps: int,
    autocast: AbstractContextManager[Any],
    compiled: Callable[[Subject], Subject],
    watch: Watch | None = None,
) -> Values:
    """Return the values of :func:`eager_values`, through ``torch.compile`` and PyTorch's own optimizer."""
    return _trained(subject, optimizer, steps, autocast, compiled, watch)


def step_values(
    subject: Subject,
    optimizer: str,
    steps: int,
    autocast: AbstractContextManager[Any],
    watch: Watch | None = None,
) -> Values:
    """Return the values of :func:`eager_values`, from whole steps of ``compile_step``."""
    own, before = OPTIMIZERS[optimizer](_parameters(subject)), _copied(subject)
    step = compile_step(subject.model, own, lambda model, batch: mean_square(model(*batch[0], **batch[1])))  # type: ignore[arg-type]
    batch = (tuple(subject.args), dict(subject.kwargs))
    watched = _Watched(subject, own, watch)
    with autocast:
        step.accumulate(batch)
    gradients = _gradients(subject)
    own.zero_grad()
    losses = []
    for _ in range(steps):
        with autocast:
            losses.append(step(batch).detach().clone())
        watched.made(losses, gradients)
    return {**gradients, **_losses(losses), **dict(_left(subject, own, before))}


def scale_of(tensor: torch.Tensor) -> float | int:
    """Return a power of two, exact as a factor, that brings the largest element near 1; 1 for integers."""
    if not (tensor.is_floating_point() or tensor.is_complex()) or not tensor.numel():
        return 1
    largest = float(tensor.detach().abs().max())
    return 2.0 ** -math.frexp(largest)[1] if math.isfinite(largest) and largest else 1


class _Watched:
    """Shows each step of a run to ``watch``, if there is one. No state is copied without it."""

    def __init__(self, subject: Subject, optimizer: torch.optim.Optimizer, watch: Watch | None) -> None:
        self.subject, self.optimizer, self.watch = subject, optimizer, watch
        self.state = None if watch is None else State.of(0, subject, optimizer)

    def made(self, losses: list[torch.Tensor], gradients: Values) -> None:
        """Show the step that was made last."""
        if self.watch is None or self.state is None:
            return
        left = {name: one.clone() for name, one in _left(self.subject, self.optimizer, self.state.tensors)}
        loss = {f"loss {self.state.step}": losses[-1]}
        first = gradients if self.state.step == 0 else {}
        self.watch(self.state, {**first, **loss, **left})
        self.state = State.of(self.state.step + 1, self.subject, self.optimizer)


def _trained(
    subject: Subject,
    optimizer: str,
    steps: int,
    autocast: AbstractContextManager[Any],
    prepare: Callable[[Subject], Subject],
    watch: Watch | None = None,
    state: State | None = None,
) -> Values:
    own, call = OPTIMIZERS[optimizer](_parameters(subject)), prepare(subject)
    start = 0
    if state is not None:
        own.load_state_dict({**own.state_dict(), "state": copy.deepcopy(state.optimizer)})
        start = state.step
    before, watched = _copied(subject), _Watched(subject, own, watch)
    gradients: Values = {}
    losses: list[torch.Tensor] = []
    for turn in range(1 if start else 0, 1 + steps):
        own.zero_grad()
        with autocast:
            loss = mean_square(call.result())
        loss.backward()
        if turn == 0:
            gradients = _gradients(subject)
            continue  # whole steps, too, give gradients once before the first update
        own.step()
        losses.append(loss.detach().clone())
        watched.made(losses, gradients)
    return {**gradients, **_losses(losses, start), **dict(_left(subject, own, before))}


def _parameters(subject: Subject) -> list[torch.Tensor]:
    assert isinstance(subject.model, torch.nn.Module)
    return [p for p in subject.model.parameters() if p.requires_grad]


def _tensors(subject: Subject) -> Values:
    """Return the parameters and buffers by name, and not copies of them."""
    assert isinstance(subject.model, torch.nn.Module)
    return {**dict(subject.model.named_parameters()), **subject.buffers()}


def _gradients(subject: Subject) -> Values:
    return {
        f"gradient of {name}": leaf.grad.to_dense().clone()
        for name, leaf in subject.leaves().items()
        if leaf.grad is not None
    }


def _losses(losses: list[torch.Tensor], start: int = 0) -> Values:
    return {f"loss {turn}": loss for turn, loss in enumerate(losses, start)}


def _copied(subject: Subject) -> Values:
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
