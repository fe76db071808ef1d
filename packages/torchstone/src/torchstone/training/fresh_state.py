"""The state that an optimizer has before its first step, found by watching a first step of a copy.

Optimizers create the state of a parameter when they first update it. A program of one step can stand for
all steps only if that state exists before the first step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch

from ..errors import TrainingError
from ..torch_internals.training import forget_step_hooks

Tensor = torch.Tensor
Kept = dict[str, Any]
"""What an optimizer keeps for one parameter."""


def state_before_first_step(optimizer: torch.optim.Optimizer, parameters: Iterable[Tensor]) -> list[Kept]:
    """Return a state for each of ``parameters``, which have none yet, from which a step does the first step.

    The optimizer is not changed. Raises :class:`TrainingError` if no such state is found, because the
    optimizer's first step differs from later ones.
    """
    groups = {id(p): group for group in optimizer.param_groups for p in group["params"]}
    return [_before_first(optimizer, p, groups[id(p)]) for p in parameters]


def _before_first(optimizer: torch.optim.Optimizer, parameter: Tensor, group: Kept) -> Kept:
    generator = torch.Generator().manual_seed(0)
    start = parameter.detach().clone()
    gradient = torch.empty_like(start).normal_(generator=generator)
    watched = _Watched()
    after, kept = _stepped(optimizer, group, start, gradient, watched)
    for candidate in (watched.first, {name: _zero(value) for name, value in watched.first.items()}):
        copied = {name: _copied(value) for name, value in candidate.items()}
        if set(copied) == set(kept) and _same(
            _stepped(optimizer, group, start, gradient, copied), (after, kept)
        ):
            return candidate
    raise TrainingError(
        f"the first step of {type(optimizer).__name__} differs from later ones, and a program is one step",
        hint="make one step in eager PyTorch or with compile_step first, and export after it",
    )


class _Watched(Kept):
    """A dict that keeps a copy of the first value stored for each entry."""

    def __init__(self) -> None:
        super().__init__()
        self.first: Kept = {}

    def __setitem__(self, name: str, value: Any) -> None:
        self.first.setdefault(name, _copied(value))
        super().__setitem__(name, value)

    def update(self, *args: Any, **kwargs: Any) -> None:
        for name, value in dict(*args, **kwargs).items():
            self[name] = value

    def setdefault(self, name: str, default: Any = None) -> Any:
        if name not in self:
            self[name] = default
        return self[name]


def _stepped(
    optimizer: torch.optim.Optimizer, group: Kept, start: Tensor, gradient: Tensor, kept: Kept
) -> tuple[Tensor, Kept]:
    """Return a parameter and its state after one step that begins with the state ``kept``."""
    parameter = torch.nn.Parameter(start.clone())
    parameter.grad = gradient.clone()
    copy = object.__new__(type(optimizer))
    copy.__dict__.update({name: value for name, value in vars(optimizer).items() if name != "step"})
    options = {name: _copied(value) for name, value in group.items() if name not in ("params", "param_names")}
    copy.param_groups = [{**options, "params": [parameter]}]
    copy.state = defaultdict(dict)
    if kept or isinstance(kept, _Watched):
        copy.state[parameter] = kept
    forget_step_hooks(copy)
    try:
        type(copy).step(copy)
    except Exception as error:
        raise TrainingError(
            f"{type(optimizer).__name__}.step does not run for one parameter alone: "
            f"{type(error).__name__}: {error}",
            hint="update the parameters of self.param_groups, or export after a step in eager PyTorch",
        ) from error
    return parameter.detach(), dict(copy.state.get(parameter, {}))


def _copied(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, Tensor) else value


def _zero(value: Any) -> Any:
    return torch.zeros_like(value) if isinstance(value, Tensor) else value


def _same(one: tuple[Tensor, Kept], other: tuple[Tensor, Kept]) -> bool:
    pairs = [(one[0], other[0]), *((value, other[1].get(name)) for name, value in one[1].items())]
    return set(one[1]) == set(other[1]) and all(
        torch.equal(a, b) if isinstance(a, Tensor) and isinstance(b, Tensor) else a == b for a, b in pairs
    )
