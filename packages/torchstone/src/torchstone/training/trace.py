"""One training step as a graph of ATen operators: forward, backward and optimizer update.

The step is PyTorch's own code, traced once: the model, autograd, and the optimizer's ``step``. The tensors
that it reads and writes are the arguments of the graph. What it computes with Python numbers is in the graph
too (:mod:`.numbers`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.fx import GraphModule
from torch.fx.traceback import preserve_node_meta

from ..backend.options import Options
from ..backend.recurrent_layers import chooser
from ..compiler.normalize import factorization_checks
from ..compiler.operators.linear_recurrence import linear_recurrences
from ..compiler.operators.mending import ASK_AUTOGRAD
from ..compiler.operators.onednn import choosing
from ..compiler.operators.tracing import mended_operators, passing_value_checks, standing_in
from ..compiler.provenance import Provenance
from ..compiler.rules import replacements, replacing, without_stand_ins
from ..config import config
from ..errors import CaptureError, TorchstoneError, TrainingError
from ..torch_internals import pytree
from ..torch_internals.dispatch import enable_python_dispatcher
from ..torch_internals.fake import FakeTensor, FakeTensorMode
from ..torch_internals.operators import namespace
from ..torch_internals.patches import patched, tracing
from ..torch_internals.tensors import mark_as_parameter
from ..torch_internals.tracing import make_fx
from ..torch_internals.training import gradient_hooks, has_hooks_after_accumulation, without_checkpointing
from .assigned import Place, assigned_buffers
from .attributes import Attributes
from .attributes import Change as Attribute
from .constants import Constants, constants_as_arguments
from .generators import refusing_draws
from .kept import refusing_changes
from .numbers import Expression, Guards, Number, number
from .origins import Origins
from .outcomes import Returned, return_writes, returned
from .overlay import Overlay, as_it_was, overlaid, roots_of, showing_stand_ins
from .randomness import without_foreign_randomness
from .reach import outer_tensors
from .recipe import Recipe
from .refusals import refusal
from .settings import Change, changed_settings, copied
from .sharing import kept_in
from .shown_numbers import refusing_unseen_settings, showing_numbers
from .state import Entry, Setting, State, refuse_changed_attributes
from .strays import refuse_strays_among_constants, refuse_strays_among_leaves
from .traced_graphs import erase_profiling, functional, read_undetached
from .tracing import Numbers, Substitution, like
from .update import clip, next_scale, optimizer_modules, run_optimizer, shadow_of, unscale

aten = namespace("aten")

Tensor = torch.Tensor


@dataclass
class Traced:
    """A step as a functional graph that writes into its first arguments, and a description of its outputs.

    The arguments are the tensors of ``state``, the vector of numbers, the batch's tensors, and ``constants``.
    The outputs are ``created``, then those of ``returned``.
    """

    module: GraphModule
    guards: Guards
    created: list[tuple[torch.Tensor, str]] = field(default_factory=list)
    """New state: the parameter that it belongs to, and its name (``grad`` for a gradient)."""
    counted: list[tuple[torch.Tensor, str, type, Expression]] = field(default_factory=list)
    """State of the optimizer that is a Python number: parameter, name, type and next value."""
    settled: list[tuple[torch.Tensor, str, Any]] = field(default_factory=list)
    """New state of the optimizer that is not a tensor: parameter, name and value."""
    returned: Returned = field(default_factory=Returned)
    """What ``loss_fn`` returned."""
    assigned: list[Place] = field(default_factory=list)
    """The places where modules get other buffers. Their values are outputs, after those of ``returned``."""
    written: list[int] = field(default_factory=list)
    """The positions of the tensors of the batch and of ``constants`` that the step writes.

    Their new values are the last outputs.
    """
    constants: Constants = field(default_factory=Constants)
    """The tensors that the graph takes after those of the batch."""
    updates: bool = False
    """Whether the optimizer's update is part of the step."""
    rows: list[Any] = field(default_factory=list)
    """Where each leaf of the result has rows, if the batch may be padded: see :mod:`.rows`."""
    attributes: list[Attribute] = field(default_factory=list)
    """Plain attributes of modules that the step changes."""
    settings: list[Change] = field(default_factory=list)
    """The changes in the optimizer's groups."""
    watched: list[torch.Tensor] | None = None
    """The parameters whose gradients must be finite for an update; None if no output says if they are."""


def trace(
    recipe: Recipe,
    kind: str,
    state: State,
    numbers: Sequence[float],
    batch: Sequence[Any],
    tree: Any,
    *,
    counters: Collection[Setting] = (),
    lines: bool = False,
    options: Options | None = None,
    read: Sequence[Tensor] = (),
) -> Traced:
    """Trace the step that ``recipe`` describes, for one batch given as leaves of ``tree``.

    ``kind`` is ``"update"``, ``"accumulate"`` (no update), or ``"export"``: an update that also outputs the
    next values of ``counted``. ``counters`` are integers of the optimizer's groups that are among the
    ``numbers``. ``options`` say whether layers of LSTMs may be left to eager PyTorch. ``read`` are tensors
    that code may read and that are not state.

    Each node records its module, and with ``lines`` also its phase and source line. If the model cannot be
    traced as it is, it is traced again under the capture rules. Raises :class:`CaptureError` if the step
    cannot be one program.
    """

    def traced(*, ruled: bool) -> Traced:
        found, fakes = _begun(state, numbers, batch)
        step = _Trace(recipe, kind, state, numbers, found, lines, counters=counters, ruled=ruled, read=read)
        graph = _graph(step, fakes, batch, tree, ASK_AUTOGRAD)
        if kind != "export":
            found.constants = constants_as_arguments(graph, step.made, step.origins)
            fakes += [_fake(fakes[0].fake_mode, tensor) for tensor in found.constants.tensors]
        found.module = functional(graph, fakes)
        state.refuse_separation(found.module)
        if kind != "export":
            found.written = return_writes(found.module, len(state.entries) + 1)
        return found

    kept = Attributes(module for _, module in state.modules)
    before = kept.values()
    with (
        tracing(),
        standing_in(),
        factorization_checks(kept=config.check_values),
        passing_value_checks(),
        mended_operators(),
        choosing(chooser(options or Options.parse(None))),
    ):
        try:
            return traced(ruled=False)
        except CaptureError:
            kept.restore(before)
            with suppress(Exception), replacements() as replaced:
                found = traced(ruled=True)
                if replaced:
                    return found
            raise


def trace_gradients(
    recipe: Recipe,
    state: State,
    numbers: Sequence[float],
    batch: Sequence[Any],
    tree: Any,
    *,
    counters: Collection[Setting] = (),
) -> Traced:
    """Trace the step up to the optimizer's update, as operators for eager PyTorch; ``created`` are gradients.

    The graph is not functional: it writes wherever the model does. LSTMs run on PyTorch's own kernel.
    """
    found, fakes = _begun(state, numbers, batch)
    with tracing(), standing_in(aten.lstm.input), choosing(lambda _: True):
        step = _Trace(recipe, "gradients", state, numbers, found, lines=False, counters=counters)
        found.module = _graph(step, fakes, batch, tree, {})
    read_undetached(found.module)
    return found


def _begun(state: State, numbers: Sequence[float], batch: Sequence[Any]) -> tuple[Traced, list[FakeTensor]]:
    """Return a result that the trace fills in, and the arguments of the graph as fake tensors."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    tensors = [*(entry.tensor for entry in state.entries), torch.tensor(numbers, dtype=torch.float64)]
    tensors += [leaf for leaf in batch if isinstance(leaf, torch.Tensor)]
    fakes = [_fake(mode, tensor) for tensor in tensors]
    return Traced(GraphModule({}, torch.fx.Graph()), Guards()), fakes


def _fake(mode: FakeTensorMode, tensor: Tensor) -> FakeTensor:
    return mode.from_tensor(tensor.detach(), static_shapes=True)


def _graph(
    step: _Trace, fakes: Sequence[torch.Tensor], batch: Sequence[Any], tree: Any, decompositions: Any
) -> GraphModule:
    """Return the graph of the operators that ``step`` calls for ``fakes``."""
    recipe = step.recipe

    def run(*arguments: torch.Tensor) -> list[torch.Tensor]:
        return step.run(arguments, batch, tree)

    with (
        refusing_changes(recipe, step.mode),
        as_it_was(recipe, step.mode),
        patched(
            *optimizer_modules(recipe.optimizer),
            *without_checkpointing(),
            *without_foreign_randomness(),
            *linear_recurrences(),
            *refusing_unseen_settings(recipe.optimizer),
        ),
        torch.enable_grad(),
    ):
        try:
            with enable_python_dispatcher(), preserve_node_meta(), refusing_draws(recipe):
                tracer = make_fx(run, decompositions, tracing_mode="real", _allow_non_fake_inputs=True)
                traced: GraphModule = tracer(*fakes)
        except TorchstoneError:
            raise
        except Exception as error:
            raise refusal(error, _Trace.run.__code__) from error
    erase_profiling(traced)
    traced.graph.eliminate_dead_code()
    traced.recompile()
    refuse_strays_among_constants(traced, step.state, step.outer)
    return traced


class _Trace:
    """One run of the step on tensors of a trace."""

    def __init__(
        self,
        recipe: Recipe,
        kind: str,
        state: State,
        numbers: Sequence[float],
        found: Traced,
        lines: bool,
        *,
        counters: Collection[Setting] = (),
        ruled: bool = False,
        read: Sequence[Tensor] = (),
    ) -> None:
        self.counters, self.ruled, self.values = counters, ruled, numbers
        self.recipe, self.kind, self.state, self.found = recipe, kind, state, found
        self.made: dict[int, Tensor] = {}
        """Constants that the trace made from others, by identity."""
        self.shown: Mapping[int, Overlay] = {}
        self.outer = outer_tensors(recipe)
        self.origins = Origins(read)
        self.mode = Numbers(found.guards, self.made, self.origins)
        self.provenance = Provenance(recipe.model, marking=True, lines=lines)

    def run(self, arguments: Sequence[torch.Tensor], batch: Sequence[Any], tree: Any) -> list[torch.Tensor]:
        entries = self.state.entries
        own = [self._own(entry, one) for entry, one in zip(entries, arguments, strict=False)]
        traced = {id(entry.tensor): one for entry, one in zip(entries, own, strict=True)}
        numbers, feed = arguments[len(own)], iter(arguments[len(own) + 1 :])
        guards, mode = self.found.guards, self.mode
        for place, (entry, one) in enumerate(zip(entries, own, strict=True)):
            if one.dim() == 0 and entry.kind in ("optimizer", "average"):
                mode.know(one, guards.leaf(("state", place), entry.tensor.detach().clone()))
        modules = [module for root in roots_of(self.recipe) for module in root.modules()]
        with (
            ExitStack() as after,
            overlaid(modules, traced) as self.shown,
            self.provenance,
            Substitution(traced, mode),
            mode,
        ):
            after.callback(mode.writes.put_back)
            made = [
                number(numbers[place], guards.leaf(place, value), guards)
                for place, value in enumerate(self.values)
            ]
            given = {id(leaf): like(leaf, next(feed)) for leaf in batch if isinstance(leaf, Tensor)}
            leaves = [given.get(id(leaf), leaf) for leaf in batch]
            return self._run(traced, iter(made), leaves, tree)

    def _own(self, entry: Entry, argument: Tensor) -> Tensor:
        own = argument.detach().requires_grad_(entry.requires_grad)
        if entry.kind == "parameter":
            mark_as_parameter(own)
            if has_hooks_after_accumulation(entry.tensor):
                raise TrainingError(
                    f"{entry.name} has a hook that runs after its gradient is accumulated",
                    hint="update in the optimizer: register_step_pre_hook, or register_hook on the parameter",
                )
            for hook in gradient_hooks(entry.tensor) if entry.requires_grad else ():
                own.register_hook(hook)
        return own

    def _run(
        self, traced: dict[int, Tensor], numbers: Iterator[Number], leaves: list[Any], tree: Any
    ) -> list[Tensor]:
        recipe, found = self.recipe, self.found
        given = {name: next(numbers) for name in recipe.numbers()}
        batch = pytree.tree_unflatten(
            [next(numbers) if isinstance(one, float) else one for one in leaves], tree
        )
        before = {id(entry.tensor): traced[id(entry.tensor)].detach().clone() for entry in self.state.entries}
        optimizer = shadow_of(recipe.optimizer, numbers, self.counters)
        with showing_numbers(recipe.optimizer, optimizer):
            loss, result = self._forward(batch, given.get("rows"))
        self.provenance.phase = "backward"
        found.assigned, buffers = assigned_buffers(self.state, self.shown, traced)
        if found.assigned and self.kind == "export":
            raise TrainingError(
                f"the step puts a buffer of another form in place of {found.assigned[0][1]!r}",
                hint="give it its final shape and dtype before the export, or train with "
                "torchstone.compile_step",
            )
        with torch.no_grad(), torch.autocast("cpu", enabled=False):
            with showing_numbers(recipe.optimizer, optimizer):
                grads = self._gradients(loss, traced)
            if self.kind == "accumulate":
                outputs = self._keep(grads, traced)
            elif self.kind == "gradients":
                clip(grads, recipe, given)
                found.created = [(p, "grad") for p in grads]
                outputs = list(grads.values())
            else:
                outputs = self._update(loss, grads, traced, before, given, optimizer)
            found.returned, tensors = returned(result, opening=self.kind != "export")
            return outputs + tensors + buffers

    def _forward(self, batch: Any, rows: Number | None) -> tuple[Tensor, Any]:
        if not self.ruled:
            return self.recipe.forward(batch, rows)
        with showing_stand_ins(self.recipe.model) as model, replacing():
            loss, result = replace(self.recipe, model=model).forward(batch, rows)
        return loss, without_stand_ins(result)

    def _gradients(self, loss: Tensor, traced: Mapping[int, Tensor]) -> dict[Tensor, Tensor]:
        """Return the gradients of the optimizer's parameters, added to those accumulated before."""
        parameters = [p for p in self.state.parameters if p.requires_grad]
        with torch.enable_grad():
            refuse_strays_among_leaves(loss, self.state, self.outer)
            if self.recipe.scaler is not None:
                loss = loss * self._scaler(traced)["scale"]
            fresh = torch.autograd.grad(loss, [traced[id(p)] for p in parameters], allow_unused=True)
        found = dict(zip(parameters, fresh, strict=True))
        grads: dict[Tensor, Tensor] = {}
        for p in self.state.parameters:  # a frozen one may have a gradient from before
            before, grad = self.state.gradients.get(p), found.get(p)
            if before is None and grad is not None:
                grads[p] = grad
            elif before is not None:
                grads[p] = traced[id(before)] if grad is None else traced[id(before)] + grad
        return grads

    def _scaler(self, traced: Mapping[int, Tensor]) -> dict[str, Tensor]:
        entries = [entry for entry in self.state.entries if entry.kind == "scaler"]
        return {entry.key: traced[id(entry.tensor)] for entry in entries}

    def _keep(self, grads: Mapping[Tensor, Tensor], traced: Mapping[int, Tensor]) -> list[Tensor]:
        """Write gradients over the existing ones, and return those of parameters that had none."""
        new = []
        for p, grad in grads.items():
            before = self.state.gradients.get(p)
            if before is None:
                self.found.created.append((p, "grad"))
                new.append(grad.detach().clone())
            else:
                traced[id(before)].copy_(grad)
        return new

    def _update(
        self,
        loss: Tensor,
        grads: dict[Tensor, Tensor],
        traced: Mapping[int, Tensor],
        before: Mapping[int, Tensor],
        given: Mapping[str, Number],
        optimizer: torch.optim.Optimizer,
    ) -> list[Tensor]:
        recipe, found = self.recipe, self.found
        found.updates = True
        self.provenance.phase = "optimizer"
        if recipe.scaler is not None:
            unscale(grads, self._scaler(traced)["scale"])
        found.watched = [*grads] if recipe.scaler is not None or recipe.nonfinite != "update" else None
        watched = [loss, *grads.values()] if recipe.nonfinite != "update" else [*grads.values()]
        finite = None if found.watched is None else torch.stack([one.isfinite().all() for one in watched])
        clip(grads, recipe, given)
        groups = copied(optimizer.param_groups)
        for p, grad in grads.items():
            traced[id(p)].grad = grad
        with showing_numbers(recipe.optimizer, optimizer):
            run_optimizer(optimizer)
        refuse_changed_attributes(recipe.optimizer, optimizer)
        found.settings = changed_settings(groups, optimizer, traced)
        outputs = self._new_state(optimizer, traced)
        if not recipe.set_to_none:
            outputs += self._keep({p: torch.zeros_like(grad) for p, grad in grads.items()}, traced)
        fine = None if finite is None else finite.all()
        self._restore({"parameter", "optimizer"}, fine, traced, before)
        if recipe.average is not None:
            recipe.average.update_parameters(recipe.model)
        if recipe.nonfinite != "update":
            self._restore({"buffer", "average"}, fine, traced, before)
        if recipe.nonfinite == "raise":
            self._restore({"gradient"}, fine, traced, before)
        if recipe.scaler is not None:
            assert finite is not None
            next_scale(self._scaler(traced), finite[len(watched) - len(grads) :].all(), recipe, given)
        return outputs if finite is None else [*outputs, finite]

    def _restore(
        self,
        kinds: Collection[str],
        fine: Tensor | None,
        traced: Mapping[int, Tensor],
        before: Mapping[int, Tensor],
    ) -> None:
        """Put back state of ``kinds`` unless ``fine`` is true. If it is None, updates are never left out."""
        for entry in self.state.entries:
            if fine is not None and entry.kind in kinds:
                own = traced[id(entry.tensor)]
                own.copy_(torch.where(fine, own, before[id(entry.tensor)]))

    def _new_state(self, optimizer: torch.optim.Optimizer, traced: Mapping[int, Tensor]) -> list[Tensor]:
        """Write tensors that the optimizer put in place of its state over the old ones; return new state."""
        new = []
        for p, kept in optimizer.state.items():
            before = kept_in(self.recipe.optimizer.state.get(p, {}))
            for name, value in kept_in(kept).items():
                old = before.get(name)
                if isinstance(value, Number):
                    assert value.node.expression is not None  # it follows from numbers alone
                    kind = int if type(old) is int else float
                    self.found.counted.append((p, name, kind, value.node.expression))
                    if self.kind == "export":
                        new.append(value.node.tensor.detach().clone())
                elif not isinstance(value, Tensor) and name not in before:
                    self.found.settled.append((p, name, value))
                elif isinstance(value, Tensor) and value is not old:
                    value = traced.get(id(value), value)
                    if isinstance(old, Tensor):
                        traced[id(old)].copy_(value)
                    else:
                        self.found.created.append((p, name))
                        new.append(value.detach().clone())
        return new
