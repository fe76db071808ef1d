"""Changes that an optimizer's step makes in its groups, such as to a learning rate or a count of steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..errors import CaptureError
from ..torch_internals import pytree
from .numbers import Expression, Number
from .state import Setting

Tensor = torch.Tensor
_OWN = ("params", "foreach", "fused")
"""Entries that a group has for the trace itself, so they are not compared."""


@dataclass(frozen=True)
class Change:
    """The value of a setting after a step, as leaves of a tree. Numbers of the trace are expressions."""

    group: int
    name: str
    leaves: Sequence[Any]
    tree: Any

    def of(self, values: Mapping[Any, Any], memo: dict[int, Any]) -> Any:
        """Return the value, computed from what is known before the step."""
        made = [one.of(values, memo) if isinstance(one, Expression) else one for one in self.leaves]
        return pytree.tree_unflatten(made, self.tree)


def copied(groups: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Copy an optimizer's groups and the containers in them."""
    return [pytree.tree_map(lambda leaf: leaf, dict(group)) for group in groups]


def changed_settings(
    before: Sequence[Mapping[str, Any]], optimizer: torch.optim.Optimizer, traced: Mapping[int, Tensor]
) -> list[Change]:
    """Return what a step of ``optimizer`` in a trace has changed in its groups, compared with ``before``.

    A tensor is written over an old one of the same form and is not returned. Raises :class:`CaptureError`
    for a value that depends on tensors, and if the step adds or removes parameters.
    """
    kind, found = type(optimizer).__name__, []
    alike = len(before) == len(optimizer.param_groups)
    if not alike or any(
        list(map(id, old["params"])) != list(map(id, new["params"]))
        for old, new in zip(before, optimizer.param_groups, strict=True)
    ):
        raise CaptureError(f"{kind}.step changes the parameters of its groups", hint="change them before it")
    for place, (old, new) in enumerate(zip(before, optimizer.param_groups, strict=True)):
        for name in [name for name in {**old, **new} if name not in _OWN]:
            if name in old and name in new and _same(old[name], new[name]):
                continue
            if name in new and _written(old.get(name), new[name], traced):
                continue
            leaves, tree = pytree.tree_flatten(new.get(name))
            known = [one.node.expression if isinstance(one, Number) else one for one in leaves]
            unknown = [isinstance(one, Number) and one.node.expression is None for one in leaves]
            if name not in new or any(unknown) or any(isinstance(one, Tensor) for one in leaves):
                raise CaptureError(
                    f"{kind}.step changes {name!r} of a group to what no program can keep there",
                    hint="compute it from numbers of the optimizer, or keep a tensor with the parameter: "
                    f"self.state[p][{name!r}]",
                )
            found.append(Change(place, name, known, tree))
    return found


def counters(changes: Sequence[Change], optimizer: torch.optim.Optimizer) -> set[Setting]:
    """Return the settings among ``changes`` that are integers and may become arguments of the program."""
    return {
        (one.group, one.name)
        for one in changes
        if type(optimizer.param_groups[one.group].get(one.name)) is int
        and not any(isinstance(leaf, Expression) for leaf in one.leaves)
    }


def _same(before: Any, now: Any) -> bool:
    leaves, tree = pytree.tree_flatten(before)
    others, other_tree = pytree.tree_flatten(now)
    return tree == other_tree and all(
        one is other or (type(one) is type(other) and not _of_trace(one) and bool(one == other))
        for one, other in zip(leaves, others, strict=True)
    )


def _of_trace(value: Any) -> bool:
    return isinstance(value, (Number, Tensor))


def _written(before: Any, now: Any, traced: Mapping[int, Tensor]) -> bool:
    """Whether a tensor took the place of one of the same form; if so, write it over the old one."""
    if not isinstance(before, Tensor) or not isinstance(now, Tensor):
        return False
    if before.shape != now.shape or before.dtype != now.dtype:
        return False
    traced[id(before)].copy_(traced.get(id(now), now))
    return True
