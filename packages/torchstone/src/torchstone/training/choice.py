"""Runs a training step as its program, or in eager PyTorch if measurements show that this is faster.

A step cannot be repeated to measure it, so the candidates take turns at the steps of the training until one
is chosen. The choice affects only rounding: eager PyTorch runs a graph of the same step, then the optimizer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .. import spans
from ..backend.measured import question
from ..backend.options import Options
from ..backend.watching import is_watched
from ..config import config
from ..errors import CaptureError
from ..runtime.decisions import Turns
from ..torch_internals.dispatch import below_autograd, set_grad_mode
from ..torch_internals.training import has_step_hooks, note_step, step_without_hooks
from .eager_graph import make_faster, saves_for_gradients
from .program import StepProgram, WholeStep
from .recipe import Recipe
from .state import State
from .trace import Traced

PROGRAM, SAVING = "compiled", "compiled for little memory"
EAGER, FUSED = "eager PyTorch", "eager PyTorch with a fused update"
_GAIN = 1.02
"""Eager PyTorch has to be at least this many times as fast as the program."""
_ALLOWED = {SAVING: 1.03, FUSED: 0.99}
"""How many times as slow as the default program another way may be that is preferred to it.

Where eager PyTorch is faster than the program, a fused update may be 1 % slower than the other one. It reads
and writes each tensor once only, and the difference is often too small to measure in a few steps.
"""
_MUCH_MEMORY, _FOR_LESS = 1.05, 1.3
"""If the default program takes this many times as much memory as eager PyTorch, speed matters less.

All other ways may then be ``_FOR_LESS`` times as slow as the default program.
"""
_HANDOVER_S = 5e-6
_FUSED = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad)
"""Optimizers that PyTorch has a fused kernel for on the CPU."""


class MeasuredStep:
    """A step that runs as ``program`` or in eager PyTorch, which take turns until one is chosen."""

    def __init__(self, program: StepProgram, recipe: Recipe, turns: Turns | None) -> None:
        self.program = program
        self._recipe, self._turns = recipe, turns
        self.of_numbers = all(isinstance(place, int) for place in program.traced.guards.seen_leaves())
        """Whether what the code saw while it was traced depends on numbers only, not on the state."""
        self._eager: EagerStep | None = None
        self._way = ""
        self._note()

    def __call__(
        self,
        compiled: Callable[[], Any],
        trace: Callable[[], Traced],
        state: State,
        arguments: Sequence[torch.Tensor],
    ) -> Any:
        """Run one step. ``compiled`` runs it as the program; ``arguments`` are those after the state.

        ``trace`` returns the graph up to the optimizer's update, for eager PyTorch. If it raises
        :class:`CaptureError`, the program runs all steps.
        """
        turns = self._turns
        if turns is None:
            return compiled()
        chosen, runs, started = turns.decision is not None, turns.next, time.perf_counter()
        if runs in (PROGRAM, SAVING):
            if not self._use(runs, turns):
                turns.drop("it takes as much memory")
                return compiled()
            result = compiled()
        else:
            try:
                self._eager = self._eager or EagerStep(self._recipe, trace(), state)
            except CaptureError:
                self._turns = None
                return compiled()
            try:
                result = self._eager(state, arguments, fused=runs == FUSED)
            except _NothingUpdated as failure:
                if chosen:
                    raise failure.error from None
                turns.drop(f"{type(failure.error).__name__}: {failure.error}")
                return compiled()
        if not chosen:
            turns.took(time.perf_counter() - started)
            self._note()
        return result

    def _use(self, way: str, turns: Turns) -> bool:
        """Set the program up for speed or for little memory; return False if ``way`` is not worth a try."""
        if not isinstance(self.program, WholeStep):
            return True
        if way != self._way:
            if way == SAVING and turns.decision is None:
                if self.program.excess() > _MUCH_MEMORY:
                    for other, factor in ((SAVING, 1.0), (EAGER, 1 / _GAIN), (FUSED, _ALLOWED[FUSED])):
                        turns.allow(other, _FOR_LESS * factor)
                if not self.program.saves():
                    return False
            self.program.use(saving=way == SAVING)
            self._way = way
        if turns.decision is not None:
            self.program.settle()
        return True

    def _note(self) -> None:
        """Note in the program's record if eager PyTorch was chosen."""
        if self._turns is None or self._turns.decision is None:
            return
        if self._turns.next not in (PROGRAM, SAVING):
            self.program.record.in_eager = 1


def turns_of_ways(
    program: StepProgram, recipe: Recipe, state: State, leaves: Sequence[Any], engine: Any
) -> Turns | None:
    """Return the turns of the ways to run ``program``, or None if there is only one, or none is measured."""
    traced, options = program.traced, Options.parse(None)
    decisions = getattr(engine, "decisions", None)
    if decisions is None or not options.tuning or config.tuning_budget_s <= 0 or is_watched():
        return None
    if traced.created:  # such a step runs once
        return None
    candidates = [PROGRAM]
    if isinstance(program, WholeStep) and not config.save_memory:
        candidates.append(SAVING)
    if options.fallback and _runs_in_eager(program, recipe, state, options):
        candidates += [EAGER, FUSED] if _can_be_fused(recipe.optimizer) else [EAGER]
    if len(candidates) == 1:
        return None
    tensors = [*(entry.tensor for entry in state.entries), *leaves, *traced.constants.tensors]
    asked = question("training step", traced.module, tensors)
    found: Turns = decisions.in_turns(asked, candidates, handover_s=_HANDOVER_S, gain=_GAIN, allowed=_ALLOWED)
    return found


def _runs_in_eager(program: StepProgram, recipe: Recipe, state: State, options: Options) -> bool:
    """Whether eager PyTorch can run the step too.

    It runs no step that draws random numbers or checks values, none whose optimizer is not one of PyTorch's,
    and none that does more than gradients, clipping and an update.
    """
    traced = program.traced
    return (
        not (options.check_indices or options.check_values or program.record.draws)
        and traced.updates
        and not (traced.settled or state.gradients or traced.written or traced.assigned or traced.settings)
        and recipe.scaler is None
        and recipe.average is None
        and recipe.nonfinite == "update"
        and not recipe.buckets
        and recipe.set_to_none
        and _is_plain(recipe.optimizer)
    )


def _is_plain(optimizer: torch.optim.Optimizer) -> bool:
    """Whether the class of ``optimizer`` is PyTorch's, and no step hooks change what its step does."""
    return getattr(torch.optim, type(optimizer).__name__, None) is type(optimizer) and not has_step_hooks(
        optimizer
    )


def _can_be_fused(optimizer: torch.optim.Optimizer) -> bool:
    return type(optimizer) in _FUSED and all(
        group["fused"] is None
        and not group["foreach"]
        and not group["differentiable"]
        and all(p.is_floating_point() for p in group["params"])
        for group in optimizer.param_groups
    )


class EagerStep:
    """A step in eager PyTorch, which runs a graph up to the optimizer's update, and then the optimizer.

    A call visits as little code as possible, because the kernels of a step leave none of it in the caches.
    """

    def __init__(self, recipe: Recipe, traced: Traced, state: State) -> None:
        make_faster(traced.module)
        self._optimizer, self._update = recipe.optimizer, step_without_hooks(recipe.optimizer)
        self._graph, self._returned = traced.module.forward, traced.returned
        self._records = saves_for_gradients(traced.module)
        self._parameters = [p for p, _ in traced.created]
        self._buffers = [place for place, entry in enumerate(state.entries) if entry.kind == "buffer"]

    def __call__(self, state: State, arguments: Sequence[torch.Tensor], *, fused: bool) -> Any:
        """Run one step. Raises :class:`_NothingUpdated` if it fails before the optimizer's update."""
        if torch.is_autocast_enabled("cpu"):
            with torch.autocast("cpu", enabled=False):
                return self(state, arguments, fused=fused)
        tensors, enabled = [entry.tensor for entry in state.entries], torch.is_grad_enabled()
        try:
            with spans.span("eager", "training step"):
                set_grad_mode(False)
                before = [(tensors[place], tensors[place].clone()) for place in self._buffers]
                try:
                    outputs = self._computed(tensors, arguments)
                    for p, grad in zip(self._parameters, outputs, strict=False):
                        p.grad = _laid_out_as(p, grad)
                except Exception as error:
                    set_grad_mode(False)
                    for tensor, value in before:
                        tensor.copy_(value)
                    raise _NothingUpdated(error) from error
                if fused:
                    self._update_fused()
                else:
                    self._update(self._optimizer)
        finally:
            set_grad_mode(enabled)
            for p in self._parameters:
                p.grad = None
        note_step(self._optimizer)
        return self._returned.of(outputs[len(self._parameters) :])

    def _computed(self, tensors: Sequence[torch.Tensor], arguments: Sequence[torch.Tensor]) -> list[Any]:
        """Return the results of the graph, whose first ones are the gradients."""
        set_grad_mode(self._records)
        with below_autograd():
            outputs: list[Any] = self._graph(*tensors, *arguments)
        set_grad_mode(False)
        return outputs

    def _update_fused(self) -> None:
        groups = self._optimizer.param_groups
        try:
            for group in groups:
                group["fused"] = True
            self._update(self._optimizer)
        finally:
            for group in groups:
                group["fused"] = None


class _NothingUpdated(Exception):
    """An eager step failed with ``error`` before it updated anything."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


def _laid_out_as(p: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
    """Return ``grad`` with the strides of ``p``, which autograd gives gradients and fused kernels need."""
    return grad if grad.stride() == p.stride() else torch.empty_like(p).copy_(grad)
