"""``compile_step``: whole training steps as one program, with state that lives in the engine."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import torch

from .. import spans
from ..errors import NotFinite, TrainingError
from ..runtime import get_engine
from ..torch_internals import pytree
from ..torch_internals.training import note_step
from . import reasons
from .attributes import Attributes
from .batch import check_tensors, check_written, flatten, forms_of
from .buckets import Reduction, checked, padded
from .choice import MeasuredStep, turns_of_ways
from .identity import Form
from .outcomes import hand_out
from .program import StepProgram, step_program
from .recipe import NonFinite, Recipe
from .residence import Residence
from .rows import Rows, where_rows_are
from .settings import counters
from .sharing import Seen, identities, keep
from .state import Setting, State, split_numbers
from .trace import Traced, trace, trace_gradients
from .watch import Place, Watch

CODE = 3
"""The index of the part of a key that describes what code of the step reads."""
_OUTSIDE = "write into it outside of the step, or make it a buffer of the model (register_buffer)"
MOST_PROGRAMS = 64
"""The most programs that one step keeps. Those of the least recently used form are dropped first."""


def compile_step(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    loss_fn: Callable[..., Any],
    *,
    clip_norm: float | None = None,
    clip_value: float | None = None,
    scaler: torch.amp.GradScaler | None = None,
    average: torch.optim.swa_utils.AveragedModel | None = None,
    set_to_none: bool = True,
    nonfinite: NonFinite = "update",
    buckets: Iterable[int] | None = None,
    reduction: Reduction = "mean",
) -> CompiledStep:
    """Compile the forward and backward passes and the optimizer's update into one program.

    ``step = compile_step(model, optimizer, loss_fn)``, then ``loss = step(inputs, targets)`` for
    ``loss_fn(model(inputs), targets)``, or ``loss = step(batch)`` for ``loss_fn(model, batch)``.

    ``clip_norm`` and ``clip_value`` clip gradients before the update, as ``torch.nn.utils`` does.
    ``scaler`` does everything between its ``scale`` and ``update``: it scales the loss, skips updates
    with gradients that are not finite, and adapts the scale. ``average`` is updated from the model after
    each update. ``set_to_none=False`` sets gradients to zeros after the step, as ``zero_grad`` does with
    that argument. ``nonfinite`` says what happens if the loss or a gradient is infinite or NaN:
    ``"update"`` updates as eager PyTorch does, ``"skip"`` leaves the update out, and ``"raise"`` also
    raises :class:`~torchstone.errors.NotFinite`.

    ``buckets`` lists numbers of rows. A batch is padded to the smallest of them that holds it, so one
    program per bucket is enough for batches of any size. ``loss_fn`` then returns a loss for each row, and
    ``reduction`` (``"mean"`` or ``"sum"``) combines the losses of the batch's own rows. A model that mixes
    rows is refused.
    """
    return CompiledStep(
        Recipe(
            model,
            optimizer,
            loss_fn,
            clip_norm,
            clip_value,
            scaler,
            average,
            set_to_none,
            nonfinite,
            checked(buckets, reduction),
            reduction,
        )
    )


class CompiledStep:
    """A training step that is compiled once for each form of its batch, and updates state in place.

    The model's parameters and buffers, the gradients and the optimizer's state are in the engine's memory.
    The tensors of the model and the optimizer show that memory, so they can be read, written, saved and
    loaded as usual. Several threads may call a step; they take turns.
    """

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._residence = Residence(get_engine())
        self._programs: OrderedDict[Any, list[MeasuredStep]] = OrderedDict()
        self._state: State | None = None
        self._attributes = Attributes(())
        self._form: Form | None = None
        self._memory: dict[int, str] = {}
        self._counters: set[Setting] = set()
        self._ids: list[int] = []
        self._seen: Seen | None = None
        self._split: tuple[list[float], Any] | None = None
        """The numbers of the optimizer and what else it keeps, as long as ``_seen`` is the same."""
        self._argument: tuple[list[float], torch.Tensor] | None = None
        """The numbers of the last call, and their tensor, which programs take as an argument."""
        self._last: tuple[Any, MeasuredStep] | None = None
        """The key and the program of the last call."""
        self._watch: Watch | None = None
        self._changed: dict[Place, Any] = {}
        """The places that the code of the step changes while it is traced, with their owners."""
        self._lock = threading.Lock()

    @property
    def programs(self) -> int:
        """How many programs this step keeps."""
        return sum(map(len, self._programs.values()))

    def __call__(self, *batch: Any) -> Any:
        """Update the model with one batch, and return what ``loss_fn`` returned, without gradients.

        Gradients that :meth:`accumulate` has added are part of the update, and are cleared after it.
        """
        return self._run("update", batch)

    def accumulate(self, *batch: Any) -> Any:
        """Add the gradients of one batch to the parameters' ``.grad``, as ``loss.backward()`` does."""
        return self._run("accumulate", batch)

    @property
    def clip_norm(self) -> float | None:
        """The bound on the norm of all gradients. Another number does not need another program."""
        return self._recipe.clip_norm

    @clip_norm.setter
    def clip_norm(self, bound: float | None) -> None:
        self._recipe.clip_norm = bound

    @property
    def clip_value(self) -> float | None:
        """The bound on each element of the gradients. Another number does not need another program."""
        return self._recipe.clip_value

    @clip_value.setter
    def clip_value(self, bound: float | None) -> None:
        self._recipe.clip_value = bound

    def _run(self, kind: str, batch: tuple[Any, ...]) -> Any:
        if len(batch) not in (1, 2):
            raise TrainingError(
                f"the step was called with {len(batch)} arguments",
                hint="call step(inputs, targets), or step(batch) with loss_fn(model, batch)",
            )
        with self._lock:
            return self._made(kind, batch)

    def _made(self, kind: str, batch: tuple[Any, ...]) -> Any:
        state = self._current()
        leaves, tree = flatten(batch)
        check_tensors(leaves, self._memory)
        rows = 0
        if self._recipe.buckets:
            leaves, rows = padded(leaves, self._recipe.buckets)
        numbers, rest = self._split or split_numbers(self._recipe.optimizer, self._counters)
        if self._seen is not None and self._seen.fixed:
            self._split = numbers, rest
        floats = [leaf for leaf in leaves if isinstance(leaf, float)]
        if more := [*self._recipe.numbers(rows).values(), *floats]:
            numbers = [*more, *numbers]
        assert self._watch is not None
        form = (self._recipe.form(), self._watch.form, rest)
        key = (kind, self._form, *form, forms_of(leaves), tree)
        step = self._found(key, state, numbers)
        if step is None:
            if self._programs:
                spans.recompiled("training step", lambda: self._reason(key, state, numbers))
            step = self._compiled(key, kind, state, numbers, leaves, tree)
            if step is None:
                return self._made(kind, batch)
        if self._argument is None or self._argument[0] is not numbers:
            self._argument = numbers, torch.tensor(numbers, dtype=torch.float64)
        self._last, program = (key, step), step.program
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        constants = program.traced.constants.tensors
        check_written([*tensors, *constants], program.traced.written)
        arguments = [self._argument[1], *tensors]
        result = step(
            lambda: self._update(program, state, numbers, [*arguments, *constants], [*tensors, *constants]),
            lambda: self._eager_graph(state, numbers, leaves, tree),
            state,
            arguments,
        )
        for own, name, value in program.traced.attributes:
            own[name] = value
        return _cut(result, program.traced.rows, rows) if self._recipe.buckets else result

    def _eager_graph(
        self, state: State, numbers: Sequence[float], leaves: Sequence[Any], tree: Any
    ) -> Traced:
        before = self._attributes.values()
        try:
            return trace_gradients(self._recipe, state, numbers, leaves, tree, counters=self._counters)
        finally:
            self._attributes.restore(before)

    def _reason(self, key: Any, state: State, numbers: Sequence[float]) -> str:
        known = self._programs.get(key)
        if not known:
            return reasons.of_key(key, self._programs)
        traced, values = known[-1].program.traced, _Leaves(state, numbers)
        if traced.guards.hold(values):
            return reasons.OF_CONSTANTS
        return reasons.of_guards(traced.guards, values)

    def _compiled(
        self, key: Any, kind: str, state: State, numbers: Sequence[float], leaves: Sequence[Any], tree: Any
    ) -> MeasuredStep | None:
        """Return a new program, or None if integers proved to be counters: they are arguments from now on."""
        before = self._attributes.values()
        with spans.span("compile", "training step: trace"):
            try:
                places = where_rows_are(self._recipe, state, leaves, tree) if self._recipe.buckets else []
                self._attributes.restore(before)
                assert self._watch is not None
                traced = trace(
                    self._recipe,
                    kind,
                    state,
                    numbers,
                    leaves,
                    tree,
                    counters=self._counters,
                    read=self._watch.tensors,
                )
                traced.attributes = self._attributes.changes(before)
            finally:
                self._attributes.restore(before)
            traced.rows = places
            if new := counters(traced.settings, self._recipe.optimizer) - self._counters:
                self._counters |= new
                self._split = None
                return None
            if traced.written and self._recipe.buckets:
                count = sum(isinstance(leaf, torch.Tensor) for leaf in leaves)
                if min(traced.written) < count:
                    what, hint = "of the batch, which is padded", "write into a copy (tensor.clone())"
                else:
                    what, hint = "that its code refers to, and its batches are padded", _OUTSIDE
                raise TrainingError(
                    f"the step writes into a tensor {what}", hint=f"{hint}, or leave buckets out"
                )
        key = self._without_changes(key)
        engine = self._residence.engine
        program = step_program(traced, len(state.entries), engine)
        turns = turns_of_ways(program, self._recipe, state, leaves, engine)
        step = MeasuredStep(program, self._recipe, turns)
        self._programs.setdefault(key, []).append(step)
        while self.programs > MOST_PROGRAMS:
            self._programs.popitem(last=False)
        return step

    def _current(self) -> State:
        """Return the present state, after moving all of it into the engine's memory."""
        if self._watch is None or not self._watch.unchanged():
            self._watch, self._state = Watch(self._recipe, self._changed), None
        if self._seen is None or not self._seen.same():
            self._seen, self._split = Seen(self._recipe.optimizer), None
            ids = identities(self._recipe.optimizer)
            if ids != self._ids:
                self._state, self._ids = None, ids
        if self._state is None:
            self._state = State(self._recipe)
            self._attributes = Attributes(module for _, module in self._state.modules)
            self._form = self._state.form()
        if not self._residence.holds([entry.tensor for entry in self._state.entries]):
            self._residence.take([entry.tensor for entry in self._state.entries])
            self._memory = {
                entry.tensor.untyped_storage().data_ptr(): entry.name
                for entry in self._state.entries
                if entry.tensor.numel()
            }
            self._form = self._state.form()
        return self._state

    def _without_changes(self, key: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return ``key`` as it is after the trace, whose code may change what it reads; programs do not."""
        assert self._watch is not None
        if self._watch.unchanged():
            return key
        found = self._watch.changes(Watch(self._recipe, self._changed))
        self._changed.update(found)
        self._watch = Watch(self._recipe, self._changed)
        return tuple(self._watch.form if place == CODE else part for place, part in enumerate(key))

    def _found(self, key: Any, state: State, numbers: Sequence[float]) -> MeasuredStep | None:
        if self._last is not None and self._argument is not None and numbers is self._argument[0]:
            before, step = self._last  # with the same numbers: guards over numbers hold
            if step.of_numbers and before == key and step.program.traced.constants.hold():
                return step
        known = self._programs.get(key, ())
        if known:
            self._programs.move_to_end(key)
        values = _Leaves(state, numbers)
        return next(
            (
                one
                for one in known
                if one.program.traced.guards.hold(values) and one.program.traced.constants.hold()
            ),
            None,
        )

    def _update(
        self,
        program: StepProgram,
        state: State,
        numbers: Sequence[float],
        arguments: list[torch.Tensor],
        outer: Sequence[torch.Tensor],
    ) -> Any:
        """Run the program. ``outer`` has the tensors of the batch and those that its code refers to."""
        traced, optimizer = program.traced, self._recipe.optimizer
        values, memo = _Leaves(state, numbers), {}  # type: ignore[var-annotated]
        counted = [(p, name, kind(one.of(values, memo))) for p, name, kind, one in traced.counted]
        settings = [(one, one.of(values, memo)) for one in traced.settings]
        own = [entry.tensor for entry in state.entries]
        created, results = program(self._residence.residents, own, arguments)
        torch.autograd.graph.increment_version([state.entries[place].tensor for place in program.updated])
        finite = None if traced.watched is None else results.pop(0)
        updated = finite is None or bool(finite.all())
        raises = not updated and self._recipe.nonfinite == "raise"
        for (p, name), (resident, tensor) in zip(traced.created, created, strict=True):
            if name == "grad" and not raises:
                p.grad = tensor
            elif updated:
                keep(optimizer.state, p, name, tensor)
            self._residence.add(resident, tensor)
        if (traced.assigned or traced.written) and (updated or self._recipe.nonfinite == "update"):
            hand_out(results, traced.assigned, outer, traced.written)
        if updated:
            for p, name, value in [*counted, *traced.settled]:
                keep(optimizer.state, p, name, value)
            for one, value in settings:
                optimizer.param_groups[one.group][one.name] = value
        if traced.updates and not raises:
            note_step(optimizer)
            if self._recipe.set_to_none:
                for p in state.gradients:
                    p.grad = None
        if raises:
            assert finite is not None
            assert traced.watched is not None
            raise self._not_finite(finite.tolist(), traced.watched, state)
        return traced.returned.of(results)

    def _not_finite(self, finite: Sequence[bool], watched: Sequence[torch.Tensor], state: State) -> NotFinite:
        names = {id(entry.tensor): entry.name for entry in state.entries}
        lost = [names[id(p)] for p, fine in zip(watched, finite[1:], strict=True) if not fine]
        parts = [] if finite[0] else ["the loss"]
        if lost:
            more = f" and {len(lost) - 3} more" if len(lost) > 3 else ""
            parts.append(f"the gradients of {', '.join(lost[:3])}{more}")
        return NotFinite(
            f"infinite or NaN: {'; '.join(parts)}. The update was left out",
            hint="lower the learning rate, clip gradients, or leave this batch out; nothing has changed",
        )


def _cut(result: Any, places: Sequence[Rows | None], rows: int) -> Any:
    """Return the result of a padded batch without the rows that were padding."""
    leaves, tree = flatten(result)
    own = [
        leaf if place is None else leaf.narrow(place.dim, 0, rows * place.each)
        for leaf, place in zip_longest(leaves, places)
    ]
    return pytree.tree_unflatten(own, tree)


class _Leaves(Mapping[Any, Any]):
    """The values of the leaves of expressions: numbers by position, tensors by ``("state", position)``."""

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
