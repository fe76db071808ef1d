"""Captured functions that eager PyTorch runs: those for which it was measured to be faster than programs."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from .. import spans
from .._version import __version__
from ..compiler.graphs import first_line
from ..config import config
from ..runtime import get_engine
from ..runtime.cache import digest
from ..runtime.decisions import Decisions
from ..torch_internals import pytree
from ..torch_internals.dispatch import without_modes
from ..torch_internals.tensors import saved_tensors_hooked
from .effects import Effects, RefusingEffects
from .options import Options
from .records import GraphRecord
from .specialize import form, is_symbolic
from .watching import is_watched

Function = Callable[..., Any]
"""What Dynamo calls: from a graph's inputs to the tuple of its outputs, with autograd."""

_COMPILED, _EAGER = "compiled", "eager PyTorch"
_NEW: Any = object()
"""Stands for what is not known yet."""
_HANDOVER_S = 5e-6
_GAIN = 1.02
"""How many times as fast as the programs eager PyTorch has to be."""
_ROUNDINGS = 64
"""Roundings of the largest gradient that another gradient may differ by."""
_TURNED = 0.05
"""Share of a gradient's norm that numbers on the other side of a ReLU's or a maximum's edge may change."""
_DIFFERENT = 1e-3
"""Share of integers that rounding may change: a position of a maximum, a comparison."""


def measured(
    compiled: Function,
    module: GraphModule,
    options: Options,
    records: Sequence[GraphRecord],
    effects: Effects,
) -> Function:
    """``compiled``, which was made of ``module``; its second call may choose that eager PyTorch runs it.

    ``records`` are those of its graphs, and ``effects`` what they do beside computing results.
    """
    if not options.fallback or not options.tuning or config.tuning_budget_s <= 0 or is_watched():
        return compiled
    if options.check_indices or options.check_values or options.passes:
        return compiled
    if any(True for _ in module.parameters()) or any(True for _ in module.buffers()):
        return compiled  # they are not among the inputs, so a trial could not keep them from being changed
    decisions = getattr(get_engine(options.engine, options.device), "decisions", None)
    if decisions is None:
        return compiled
    return MeasuredFunction(compiled, module, records, effects, decisions, options.specializations)


class MeasuredFunction:
    """Runs what was compiled until its second call, which measures what runs from then on.

    Each set of sizes is measured by itself where sizes are symbolic. Nothing but time and rounding depends
    on the choice: functions with other effects than writing their inputs, as drawing random numbers, always
    run what was compiled. Safe from several threads.
    """

    def __init__(
        self,
        compiled: Function,
        module: GraphModule,
        records: Sequence[GraphRecord],
        effects: Effects,
        decisions: Decisions,
        most: int,
    ) -> None:
        self._compiled = compiled
        self._module = module
        self._records = records
        self._effects = effects
        self._decisions = decisions
        self._most = max(most, 1)
        self._symbolic = is_symbolic(module)
        self._states: OrderedDict[Any, Function | None] = OrderedDict()
        """By sizes: what runs from now on; None after the first call."""
        self._lock = threading.Lock()  # for the dictionary alone

    def __call__(self, *inputs: Any) -> Any:
        key = tuple(map(form, inputs)) if self._symbolic else None
        state = self._states.get(key, _NEW)
        if state is _NEW:
            return self._first(key, inputs)
        if state is None:
            state = self._chosen(key, inputs)
        return state(*inputs)

    def _first(self, key: Any, inputs: Sequence[Any]) -> Any:
        results = self._compiled(*inputs)
        self._set(key, None if self._can_be_tried(inputs) else self._compiled)
        return results

    def _chosen(self, key: Any, inputs: Sequence[Any]) -> Function:
        if saved_tensors_hooked():  # by the user, or by activation checkpointing, which counts what is saved
            return self._compiled
        if not self._can_be_tried(inputs) or not self._is_eager_faster(inputs):
            self._set(key, self._compiled)
            return self._compiled
        eager = EagerFunction(self._module)
        if self._set(key, eager) is None:  # no other thread was first
            for record in self._records:
                record.in_eager += 1
        return eager

    def _set(self, key: Any, state: Function | None) -> Function | None:
        """Keep ``state`` for ``key``; returns what was kept before."""
        with self._lock:
            before = self._states.get(key)
            self._states[key] = state
            while len(self._states) > self._most:
                self._states.popitem(last=False)
        return before

    def _can_be_tried(self, inputs: Sequence[Any]) -> bool:
        written = self._effects.written
        return self._effects.repeatable and written is not None and _can_be_tried(inputs, written)

    def _is_eager_faster(self, inputs: Sequence[Any]) -> bool:
        written = self._effects.written or ()

        def trial(function: Function) -> Trial:
            return _trial(function, inputs, written)

        def eager() -> Callable[[], Trial]:
            with RefusingEffects():
                trial(self._module.forward)
            return lambda: trial(self._module.forward)

        with without_modes():
            found = self._decisions.best(
                question("function", self._module, inputs),
                {_COMPILED: lambda: lambda: trial(self._compiled), _EAGER: eager},
                agree=_agree,
                handover_s=_HANDOVER_S,
                gain=_GAIN,
                budget_s=config.tuning_budget_s,
            )
        return found.chosen == _EAGER


class EagerFunction:
    """A captured function in eager PyTorch, with PyTorch's own gradients.

    A graph switches the recording of gradients off and on. An error in between leaves it as it was before.
    """

    def __init__(self, module: GraphModule) -> None:
        self._run = module.forward
        self._name = f"function{first_line(module)}"

    def __call__(self, *inputs: Any) -> Any:
        recording = torch.is_grad_enabled()
        try:
            with spans.span("eager", self._name):
                return self._run(*inputs)
        except BaseException:
            torch.set_grad_enabled(recording)
            raise


def _can_be_tried(inputs: Sequence[Any], written: Iterable[int]) -> bool:
    """Whether copies of the ``written`` inputs are all that a trial needs to change nothing of the user's."""
    if not all(isinstance(one, _KNOWN) for one in inputs):
        return False
    tensors = [one for one in inputs if isinstance(one, torch.Tensor)]
    if not all(type(one) in _PLAIN and one.layout == torch.strided for one in tensors):
        return False
    if any(one.device.type != "cpu" for one in tensors):
        return False
    memory = [one.untyped_storage().data_ptr() for one in tensors]
    changed = [inputs[place] for place in written]
    return all(
        not one.requires_grad and memory.count(one.untyped_storage().data_ptr()) == 1 for one in changed
    )


_PLAIN = (torch.Tensor, torch.nn.Parameter)
_KNOWN = (torch.Tensor, bool, int, float, complex, type(None))
"""Types of inputs; others may have a state that a call changes."""


Trial = tuple[list[Any], Sequence[Any]]
"""Results and gradients."""


def _trial(function: Function, inputs: Sequence[Any], written: Iterable[int]) -> Trial:
    """One call of ``function`` and, where it has gradients, of its backward pass; results and gradients.

    Each gradient is read after that, in eager PyTorch, as by an optimizer: what that costs depends on the
    threads that a backward pass leaves behind.
    """
    given = [_detached(one, place in written) for place, one in enumerate(inputs)]
    with torch.set_grad_enabled(torch.is_grad_enabled()):  # an error may leave it as it is in the graph
        made = function(*given)
    outputs = [one for one in pytree.tree_leaves(made) if isinstance(one, torch.Tensor)]
    results = [one.detach() for one in outputs] + [given[place] for place in sorted(written)]
    ends = [one for one in outputs if one.requires_grad]
    leaves = [one for one in given if isinstance(one, torch.Tensor) and one.requires_grad]
    if not ends or not leaves:
        return results, []
    gradients = torch.autograd.grad(
        ends, leaves, [one.detach() for one in ends], allow_unused=True, materialize_grads=True
    )
    for one in gradients:
        one.sum()
    return results, gradients


def _detached(value: Any, written: bool) -> Any:
    """``value`` without its history, and in memory of its own if it is ``written``."""
    if not isinstance(value, torch.Tensor):
        return value
    alone = value.detach()
    return (alone.clone() if written or value.is_inference() else alone).requires_grad_(value.requires_grad)


def question(what: str, module: GraphModule, inputs: Sequence[Any]) -> dict[str, Any]:
    """The operators, the inputs' dtypes, shapes and strides, and what else the time depends on."""
    codes = [part.code.encode() for part in module.modules() if isinstance(part, GraphModule)]
    return {
        "what": what,
        "function": digest([*codes, *map(_described, inputs)]),
        "gradient": torch.is_grad_enabled(),
        "autocast": str(torch.get_autocast_dtype("cpu")) if torch.is_autocast_enabled("cpu") else None,
        "torchstone": __version__,
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
    }


def _described(value: Any) -> bytes:
    if not isinstance(value, torch.Tensor):
        return repr(value).encode()
    return f"{value.dtype} {list(value.shape)} {value.stride()} {value.requires_grad}".encode()


def _agree(expected: Sequence[Sequence[Any]], found: Sequence[Sequence[Any]]) -> bool:
    """Equal but for rounding: results element by element, gradients as a whole.

    Rounding decides whether a ReLU passes a number next to zero, and which of two almost equal numbers is
    the maximum; a gradient then has other elements. One that is zero but for rounding has no digit in
    common with another way to compute it. So what is small beside the largest gradient may differ by
    roundings of that one.
    """
    # Some gradients of tables are sparse in eager PyTorch.
    (results, gradients), (others, other_gradients) = (
        [[one.to_dense() for one in tensors] for tensors in both] for both in (expected, found)
    )
    largest = max(map(_largest, gradients), default=0.0)
    return all(map(_alike, results, others)) and all(
        _norm(one - other) <= _TURNED * _norm(one) + _ROUNDINGS * _eps(one) * largest * one.numel() ** 0.5
        for one, other in zip(gradients, other_gradients, strict=True)
    )


def _alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    if not one.numel():
        return True
    if one.dtype.is_floating_point and one.dtype.itemsize == 1:
        # PyTorch does not compute in float8. These are compared by their bits.
        one, other = one.view(torch.uint8), other.view(torch.uint8)
    if not _rounds(one):
        return int((one != other).count_nonzero()) <= _DIFFERENT * one.numel()
    tolerance = _eps(one) ** 0.5
    return torch.allclose(one, other, rtol=tolerance, atol=tolerance * _largest(one), equal_nan=True)


def _eps(tensor: torch.Tensor) -> float:
    return torch.finfo(tensor.dtype).eps


def _norm(tensor: torch.Tensor) -> float:
    return float(torch.linalg.vector_norm(tensor.abs(), dtype=torch.float64))


def _rounds(tensor: torch.Tensor) -> bool:
    return tensor.dtype.is_floating_point or tensor.dtype.is_complex


def _largest(tensor: torch.Tensor) -> float:
    return float(tensor.abs().nan_to_num(0, 0, 0).max()) if tensor.numel() else 0.0
