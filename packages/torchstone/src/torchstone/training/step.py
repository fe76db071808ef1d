"""``compile_step``: whole training steps as one program, with state that lives in the engine."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import torch

from ..errors import TrainingError
from ..runtime import get_engine
from ..torch_internals import pytree
from ..torch_internals.tensors import members, submodules
from .program import StepProgram
from .recipe import Recipe
from .residence import Residence
from .state import State, split_numbers
from .trace import trace


def compile_step(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, loss_fn: Callable[..., Any]
) -> CompiledStep:
    """Forward, backward and optimizer update as one program.

    ``step = compile_step(model, optimizer, loss_fn)``, then ``loss = step(inputs, targets)`` for
    ``loss_fn(model(inputs), targets)``, or ``loss = step(batch)`` for ``loss_fn(model, batch)``. See
    :class:`CompiledStep`.
    """
    return CompiledStep(Recipe(model, optimizer, loss_fn))


class CompiledStep:
    """A training step that is compiled once for each form of its batch, and updates state in place.

    The model's parameters and buffers, the gradients and the optimizer's state lie in memory of the
    engine's, which the tensors of the model and the optimizer show: they can be read, written, saved
    and loaded as ever.
    """

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._residence = Residence(get_engine())
        self._programs: dict[Any, list[StepProgram]] = {}
        self._forms: dict[Any, int] = {}
        self._state: State | None = None
        self._form = 0
        self._ids: list[int] = []
        self._lock = threading.Lock()

    @property
    def programs(self) -> int:
        """How many programs this step has compiled."""
        return sum(map(len, self._programs.values()))

    def __call__(self, *batch: Any) -> Any:
        """Update the model with one batch; returns what ``loss_fn`` returned, without gradients.

        Gradients that :meth:`accumulate` left are added before, and are gone afterwards.
        """
        return self._run("update", batch)

    def accumulate(self, *batch: Any) -> Any:
        """Add the gradients of one batch to the parameters' ``.grad``, as ``loss.backward()`` does."""
        return self._run("accumulate", batch)

    def _run(self, kind: str, batch: tuple[Any, ...]) -> Any:
        if len(batch) not in (1, 2):
            raise TrainingError(
                f"the step was called with {len(batch)} arguments",
                hint="call step(inputs, targets), or step(batch) with loss_fn(model, batch)",
            )
        with self._lock:
            state = self._current()
            leaves, tree = pytree.tree_flatten(batch)
            numbers, rest = split_numbers(self._recipe.optimizer)
            flags = self._flags(state)
            key = (kind, self._form, flags, rest, tuple(map(_form_of, leaves)), tree)
            program = self._found(key, state, numbers)
            if program is None:
                traced = trace(self._recipe, kind, state, numbers, leaves, tree)
                program = StepProgram(traced, len(state.entries), self._residence.engine)
                self._programs.setdefault(key, []).append(program)
            return self._update(program, state, numbers, leaves)

    def _current(self) -> State:
        """The state as it is now, all of it in memory of the engine's."""
        ids = self._identities()
        if self._state is None or ids != self._ids:
            self._state = State(self._recipe)
            self._ids = self._identities()
        if not self._residence.holds([entry.tensor for entry in self._state.entries]):
            self._residence.take([entry.tensor for entry in self._state.entries])
            form = self._state.form()
            self._form = self._forms.setdefault(form, len(self._forms))
        return self._state

    def _identities(self) -> list[int]:
        """What changes where a tensor of the state, or a module, takes the place of another."""
        optimizer, modules = self._recipe.optimizer, [] if self._state is None else self._state.modules
        owned = (own.values() for _, module in modules for own in (*members(module), submodules(module)))
        kept = (one for state in optimizer.state.values() for one in state.values())
        groups = optimizer.param_groups
        return [
            *map(id, chain.from_iterable(owned)),
            *(id(one) for one in kept if isinstance(one, torch.Tensor)),
            *(id(one) for group in groups for one in (group, *group["params"])),
            *(id(p.grad) for group in groups for p in group["params"]),
            *(id(one) for group in groups for one in group.values() if isinstance(one, torch.Tensor)),
        ]

    def _flags(self, state: State) -> tuple[Any, ...]:
        return (
            tuple(module.training for _, module in state.modules),
            tuple(p.requires_grad for p in state.parameters),
        )

    def _found(self, key: Any, state: State, numbers: Sequence[float]) -> StepProgram | None:
        known = self._programs.get(key, ())
        values = _Leaves(state, numbers)
        return next((one for one in known if one.traced.guards.hold(values)), None)

    def _update(
        self, program: StepProgram, state: State, numbers: Sequence[float], leaves: Sequence[Any]
    ) -> Any:
        traced, optimizer = program.traced, self._recipe.optimizer
        tensors = [torch.tensor(numbers, dtype=torch.float64)]
        tensors += [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        values, memo = _Leaves(state, numbers), {}  # type: ignore[var-annotated]
        counted = [(p, name, one.of(values, memo)) for p, name, one in traced.counted]
        created, results = program(self._residence.residents, tensors)
        torch.autograd.graph.increment_version([state.entries[place].tensor for place in program.updated])
        for (p, name), (resident, tensor) in zip(traced.created, created, strict=True):
            self._residence.add(resident, tensor)
            if name == "grad":
                p.grad = tensor
            else:
                optimizer.state[p][name] = tensor
        for p, name, value in counted:
            optimizer.state[p][name] = type(optimizer.state[p][name])(value)
        if traced.updates:
            for p in state.gradients:
                p.grad = None
        feed = iter(results)
        made = [next(feed) if leaf in (torch.Tensor, float) else leaf for leaf in traced.leaves]
        made = [one.item() if kind is float else one for one, kind in zip(made, traced.leaves, strict=True)]
        return pytree.tree_unflatten(made, traced.tree)


class _Leaves(Mapping[Any, Any]):
    """The values of expressions' leaves: numbers by position, 0-d tensors of the state."""

    def __init__(self, state: State, numbers: Sequence[float]) -> None:
        self._state, self._numbers = state, numbers

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, tuple):
            return self._state.entries[place[1]].tensor
        return self._numbers[place]

    def __len__(self) -> int:
        return len(self._numbers) + len(self._state.entries)

    def __iter__(self) -> Iterator[Any]:
        yield from range(len(self._numbers))
        yield from (("state", place) for place in range(len(self._state.entries)))


def _form_of(leaf: Any) -> Any:
    """What a program depends on in a leaf of a batch."""
    if isinstance(leaf, torch.Tensor):
        return leaf.shape, leaf.stride(), leaf.dtype
    return type(leaf), repr(leaf)
