"""What a step reads and updates: parameters, buffers, gradients, and the optimizer's state."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, combinations
from typing import Any, Literal

import torch

from ..errors import TrainingError
from ..overlap import overlap
from ..torch_internals.tensors import members
from ..torch_internals.training import NOT_FOR_STEPS, own_step, scaler_state
from .identity import Form
from .recipe import Recipe
from .sharing import form_of, kept_in

GROUPS, STATE = "optimizer.param_groups", "optimizer.state"
"""Prefixes of the names of what an optimizer keeps in its groups and in its state."""

Kind = Literal["parameter", "buffer", "gradient", "optimizer", "option", "scaler", "average"]


@dataclass(frozen=True, eq=False)
class Entry:
    """One tensor of the state, and where it is kept."""

    kind: Kind
    name: str
    tensor: torch.Tensor
    owner: Mapping[str, Any]
    key: str

    @property
    def requires_grad(self) -> bool:
        return self.kind == "parameter" and self.tensor.requires_grad


class State:
    """The tensors of a step at one time, each listed once. Their values may change; the tensors may not."""

    def __init__(self, recipe: Recipe) -> None:
        self.optimizer = recipe.optimizer
        self.modules = [(path, module) for root in recipe.modules() for path, module in root.named_modules()]
        self.entries: list[Entry] = []
        self._seen: set[int] = set()
        for path, module in self.modules:
            own, buffers = members(module)
            self._add("parameter", path, own)
            self._add("buffer", path, buffers)
        self.parameters: list[torch.Tensor] = [
            p for group in self.optimizer.param_groups for p in group["params"]
        ]
        self._refuse_strangers()
        self._together = [*self._in_the_same_memory()]
        self._refuse_shared_memory()
        self._refuse_own_step()
        self.gradients = {p: p.grad for p in self.parameters if p.grad is not None}
        for place, p in enumerate(self.parameters):
            if p.grad is not None:
                self._add("gradient", f"parameter {place}", {"grad": p.grad})
        for place, kept in enumerate(self.optimizer.state.values()):
            self._add("optimizer", f"state {place}", kept_in(kept))
        if recipe.scaler is not None:
            self._add("scaler", "scaler", scaler_state(recipe.scaler))
        if recipe.average is not None:
            for path, module in recipe.average.named_modules():
                for own in members(module):
                    self._add("average", f"average.{path}", own)
        for place, group in enumerate(self.optimizer.param_groups):
            self._add("option", f"group {place}", options(group))

    def _add(self, kind: Kind, path: str, own: Mapping[str, Any]) -> None:
        for name, value in own.items():
            if isinstance(value, torch.Tensor) and id(value) not in self._seen:
                self._seen.add(id(value))
                self.entries.append(Entry(kind, f"{path}.{name}" if path else name, value, own, name))

    def _refuse_strangers(self) -> None:
        strangers = [list(p.shape) for p in self.parameters if id(p) not in self._seen]
        if strangers:
            raise TrainingError(
                f"the optimizer updates {len(strangers)} parameter(s) that the model does not have, "
                f"the first of shape {strangers[0]}",
                hint="make the optimizer from model.parameters(), after the model has its final parameters",
            )

    def _refuse_own_step(self) -> None:
        """Raise TrainingError if the optimizer object has its own ``step``: programs run the class's."""
        if own_step(self.optimizer) is not None:
            kind = type(self.optimizer).__name__
            raise TrainingError(
                f"this {kind} has a step of its own, in place of {kind}.step",
                hint="define it in a class that inherits from the optimizer's, or as a hook: "
                "register_step_pre_hook, register_step_post_hook",
            )

    def _refuse_shared_memory(self) -> None:
        """Raise TrainingError if parameters share memory: each gets its own here, so they would separate."""
        for one, other in self._together:
            if one.kind == other.kind == "parameter":
                raise TrainingError(
                    f"{one.name} and {other.name} are different parameters over the same memory",
                    hint="tie weights by assigning one parameter to both modules",
                )

    def refuse_separation(self, module: torch.fx.GraphModule) -> None:
        """Raise TrainingError if the step ``module`` writes an entry that shared memory with another one.

        Each entry gets its own memory here, so the other one would not see what is written.
        """
        own = dict(zip(module.graph.find_nodes(op="placeholder"), self.entries, strict=False))
        copies = module.graph.find_nodes(op="call_function", target=torch.ops.aten.copy_.default)
        written = {own[node.args[0]] for node in copies if node.args[0] in own}
        for one, other in self._together:
            if one in written or other in written:
                raise TrainingError(
                    f"the step writes {(one if one in written else other).name}, and {one.name} and"
                    f" {other.name} share memory",
                    hint="register one tensor in both places, or clone() one of them",
                )

    def _in_the_same_memory(self) -> Iterator[tuple[Entry, Entry]]:
        """Yield pairs of entries with elements in the same memory."""
        places: dict[int, list[Entry]] = {}
        for entry in self.entries:
            if entry.tensor.layout is torch.strided:
                places.setdefault(entry.tensor.untyped_storage().data_ptr(), []).append(entry)
        for one, other in chain.from_iterable(combinations(found, 2) for found in places.values()):
            if overlap(one.tensor.detach(), other.tensor.detach()):
                yield one, other

    def form(self) -> Form:
        """Return what a program depends on, apart from values and from what modules keep."""
        return form_of(self.entries, self.optimizer)


_NOT_OPTIONS = frozenset(
    {"params", "param_names"}
    # what schedulers keep for themselves
    | {"initial_lr", "max_lr", "min_lr", "base_momentum", "max_momentum", "swa_lr"}
)


def options(group: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an optimizer reads from a parameter group besides the parameters."""
    return {name: value for name, value in group.items() if name not in _NOT_OPTIONS}


Setting = tuple[int, str]
"""The index of one of the optimizer's groups, and a name in that group."""


def split_numbers(
    optimizer: torch.optim.Optimizer, counters: Collection[Setting] = ()
) -> tuple[list[float], Any]:
    """Return the numbers of an optimizer, and the rest of its options and state, which programs depend on.

    The numbers of the groups come first, then those of the state, in the order in which
    :func:`put_numbers` takes them. Integers of the state are included. Integers of groups are included only
    if they are in ``counters``.
    """
    numbers: list[float] = []
    groups = tuple(
        tuple((name, _rest(one, numbers, (place, name) in counters)) for name, one in options(group).items())
        for place, group in enumerate(optimizer.param_groups)
    )
    state = tuple(
        (name, _rest(value, numbers, integers=True))
        for kept in optimizer.state.values()
        for name, value in (kept if isinstance(kept, dict) else kept_in(kept)).items()
    )
    return numbers, (groups, state)


def refuse_changed_attributes(before: torch.optim.Optimizer, after: torch.optim.Optimizer) -> None:
    """Raise TrainingError if an optimizer's step has changed a number, string or boolean attribute of it."""
    now = _plain_attributes(after)
    old = _plain_attributes(before)
    for name, new in now.items():
        value = old.get(name)
        if new != value:
            raise TrainingError(
                f"{type(before).__name__}.step changes its attribute {name!r}, from {value} to {new}, and a "
                "program has it as a constant",
                hint=f"keep it in the group or with the parameter: self.state[p][{name!r}]",
            )


def _plain_attributes(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Return the numbers, strings and booleans among an optimizer's attributes."""
    plain = (bool, int, float, str)
    found = {name: value for name, value in vars(optimizer).items() if type(value) in plain}
    return {name: value for name, value in found.items() if name not in NOT_FOR_STEPS}


def number_names(optimizer: torch.optim.Optimizer, names: Mapping[int, str]) -> list[str]:
    """Return the names of the numbers of :func:`split_numbers`, in the same order.

    ``names`` holds the names of parameters, by identity.
    """
    found = []
    for place, group in enumerate(optimizer.param_groups):
        for name, value in options(group).items():
            found += _names(value, f"{GROUPS}.{place}.{name}")
    for p, kept in optimizer.state.items():
        for name, value in kept.items():
            found += _names(float(value) if type(value) is int else value, f"{STATE}.{names[id(p)]}.{name}")
    return found


def _names(value: Any, name: str) -> list[str]:
    if isinstance(value, float):
        return [name]
    if isinstance(value, (tuple, list)):
        return [one for place, part in enumerate(value) for one in _names(part, f"{name}.{place}")]
    return []


def _rest(value: Any, numbers: list[float], integers: bool = False) -> Any:
    """Return ``value`` without its numbers, and append these to ``numbers``.

    With ``integers``, ``value`` counts as a number if it is an integer.
    """
    if isinstance(value, float) or (integers and type(value) is int):
        numbers.append(value)
        return type(value)
    if isinstance(value, (tuple, list)):
        return tuple(_rest(one, numbers) for one in value)
    if isinstance(value, torch.Tensor):
        return torch.Tensor
    return type(value), repr(value)


def put_numbers(value: Any, numbers: Any, integers: bool = False) -> Any:
    """Return ``value`` with its numbers replaced by the next ones of the iterator ``numbers``."""
    if isinstance(value, float) or (integers and type(value) is int):
        return next(numbers)
    if isinstance(value, (tuple, list)):
        return type(value)(put_numbers(one, numbers) for one in value)
    return value
