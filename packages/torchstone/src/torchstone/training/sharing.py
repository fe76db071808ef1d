"""How the tensors of a step's state belong together: the gradient, group and state of each parameter.

Which modules share a parameter is handled with everything else that modules keep, in :mod:`.watch`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from operator import attrgetter, is_
from types import NoneType
from typing import TYPE_CHECKING, Any

import torch

from .identity import Form, Same

if TYPE_CHECKING:
    from .state import Entry

_gradient = attrgetter("grad")
ITSELF = "itself"
"""The name of a value that an optimizer keeps directly in its state, such as ``state["calls"] = 0``."""


def kept_in(value: Any) -> Mapping[str, Any]:
    """Return what one entry of an optimizer's state keeps, by name."""
    return value if isinstance(value, dict) else {ITSELF: value}


def keep(state: dict[Any, Any], owner: Any, name: str, value: Any) -> None:
    """Put ``value`` into an optimizer's ``state`` for ``owner``, where :func:`kept_in` finds it."""
    if name == ITSELF and not isinstance(state.get(owner), dict):
        state[owner] = value
    else:
        state[owner][name] = value


def identities(optimizer: torch.optim.Optimizer) -> list[int]:
    """Return numbers that change if a tensor of the optimizer is replaced or its tensors are reordered."""
    groups, state = optimizer.param_groups, optimizer.state
    parameters = list(chain.from_iterable([group["params"] for group in groups]))
    kept = chain.from_iterable(
        [one.values() if isinstance(one, dict) else (one,) for one in (*state.values(), *groups)]
    )
    return [
        *map(id, groups),
        *[len(group["params"]) for group in groups],
        *map(id, parameters),
        *map(id, map(_gradient, parameters)),
        *map(id, state),
        *(id(one) for one in kept if isinstance(one, torch.Tensor)),
    ]


class Seen:
    """The objects that an optimizer keeps, to see before each call whether all of them are still the same.

    :meth:`same` makes one pass in C. It takes a fraction of the time of :func:`identities`, which says the
    same of tensors only. ``fixed`` is False if something else in a group or in the state can be written in
    place, such as a list: then only the tensors are known to be the same.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer
        self._sizes, self._objects = self._now()
        kept = chain.from_iterable(map(dict.values, self._dicts()))
        lists = {id(group["params"]) for group in optimizer.param_groups}
        self.fixed = all(_is_fixed(one) or id(one) in lists for one in kept) and len(self._dicts()) == len(
            optimizer.param_groups
        ) + len(optimizer.state)

    def same(self) -> bool:
        """Whether the optimizer keeps the same objects in the same places as when this was made."""
        sizes, objects = self._now()
        return sizes == self._sizes and all(map(is_, objects, self._objects))

    def _dicts(self) -> list[dict[Any, Any]]:
        state = self._optimizer.state.values()
        return [*self._optimizer.param_groups, *[one for one in state if isinstance(one, dict)]]

    def _now(self) -> tuple[list[int], list[Any]]:
        groups, state, dicts = self._optimizer.param_groups, self._optimizer.state, self._dicts()
        lists = [group["params"] for group in groups]
        parameters = list(chain.from_iterable(lists))
        objects = [*parameters, *map(_gradient, parameters), *state, *state.values(), *dicts]
        objects += chain.from_iterable(dicts)
        objects += chain.from_iterable(map(dict.values, dicts))
        return [*map(len, lists), *map(len, dicts)], objects


_FIXED = frozenset({bool, int, float, str, NoneType, torch.Tensor, torch.nn.Parameter})


def _is_fixed(value: Any) -> bool:
    """Whether nothing but the elements of a tensor can change in ``value``."""
    return type(value) in _FIXED or (type(value) is tuple and all(map(_is_fixed, value)))


def form_of(entries: Iterable[Entry], optimizer: torch.optim.Optimizer) -> Form:
    """Return the form of the state: its tensors without their values, and what each of them belongs to.

    The form contains the optimizer's parameters as objects, because programs store new state for them.
    """
    places = {id(entry.tensor): place for place, entry in enumerate(entries)}

    def place_of(value: Any) -> int | None:
        return places.get(id(value))

    return Form(
        (
            *(
                (entry.kind, entry.key, one.shape, one.dtype, one.stride(), one.requires_grad)
                for entry in entries
                for one in (entry.tensor,)
            ),
            *((tuple(Same(p) for p in group["params"])) for group in optimizer.param_groups),
            *(
                tuple((place_of(p), place_of(p.grad)) for p in group["params"])
                for group in optimizer.param_groups
            ),
            *(
                (place_of(p), *((name, place_of(one)) for name, one in kept_in(kept).items()))
                for p, kept in optimizer.state.items()
            ),
        )
    )
