"""Shows the optimizer's numbers as arguments of the program to all code of a step that is traced.

The loss, the model and hooks may read the optimizer's groups. They get the numbers that the optimizer's own
step gets. Values that schedulers keep are not arguments, so a step that reads them is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch.optim.lr_scheduler import LRScheduler

from ..torch_internals.patches import Patch, functions
from .numbers import Number
from .refusals import Refused
from .state import options

OF_SCHEDULERS = frozenset(
    {"_last_lr", "_step_count", "last_epoch"}
    | {"best", "cooldown_counter", "num_bad_epochs"}  # of ReduceLROnPlateau
)
"""Attributes that a scheduler changes in its ``step``."""
_OF_TRACE = frozenset({"params", "param_names", "foreach", "fused"})
"""Entries of groups that are the same in a trace, or that are set for it."""
_WITH_THE_BATCH = "pass other values that change with the batch, as numbers: step((inputs, targets, value))"


@contextmanager
def showing_numbers(real: torch.optim.Optimizer, shadow: torch.optim.Optimizer) -> Iterator[None]:
    """Show the numbers of ``shadow`` in the groups and the state of the optimizer ``real``.

    An entry that the block changes keeps its new value, so that :mod:`.kept` finds and restores it.
    """
    placed: list[tuple[dict[Any, Any], Any, Any, Any]] = []
    for group, ours in zip(real.param_groups, shadow.param_groups, strict=True):
        known = options(group)
        for name in group.keys() - _OF_TRACE:
            placed.append((group, name, group[name], ours[name] if name in known else _unread(name)))
    for p, kept in real.state.items():
        if not isinstance(kept, dict):
            placed.append((real.state, p, kept, shadow.state[p]))
            continue
        placed += [(kept, name, value, shadow.state[p][name]) for name, value in kept.items()]
    try:
        for own, name, _, shown in placed:
            own[name] = shown
        yield
    finally:
        for own, name, before, shown in placed:
            if own.get(name) is shown:
                own[name] = before


def refusing_unseen_settings(optimizer: torch.optim.Optimizer) -> list[Patch]:
    """Return patches that refuse reads of settings which programs do not follow.

    These are what schedulers change in their steps, and the groups of optimizers other than ``optimizer``.
    """

    def of_scheduler(self: LRScheduler, name: str) -> Any:
        if name in OF_SCHEDULERS:
            raise Refused(
                f"code of the step uses the scheduler {type(self).__name__} (its {name!r}), which changes "
                "between steps",
                "read the learning rate from optimizer.param_groups, and call scheduler.step() after the "
                f"step; {_WITH_THE_BATCH}",
            )
        return object.__getattribute__(self, name)

    def of_optimizer(self: torch.optim.Optimizer, name: str) -> Any:
        if name == "param_groups" and vars(self).get("defaults") is not optimizer.defaults:
            raise Refused(
                f"code of the step uses the groups of another {type(self).__name__}, and programs follow "
                "only those of their own",
                _WITH_THE_BATCH,
            )
        return object.__getattribute__(self, name)

    return [
        functions(LRScheduler, __getattribute__=of_scheduler),
        functions(torch.optim.Optimizer, __getattribute__=of_optimizer),
    ]


class _Unread:
    """The node of a number that no code of a step may use."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, _: str) -> Any:
        raise Refused(
            f"code of the step reads {self._name!r} in a group of the optimizer, which schedulers keep there "
            "for themselves",
            f"read 'lr' or 'momentum'; {_WITH_THE_BATCH}",
        )


def _unread(name: str) -> Number:
    return Number(cast(Any, _Unread(name)))
