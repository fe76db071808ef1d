"""Runs a captured function in eager PyTorch where that was measured to be faster than its programs."""

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
"""A function that Dynamo calls, with autograd: from a graph's inputs to the tuple of its outputs."""

_COMPILED, _EAGER = "compiled", "eager PyTorch"
_NEW: Any = object()
"""The state of a set of sizes that has not been called yet."""
_HANDOVER_S = 5e-6
_GAIN = 1.02
"""How many times as fast as the programs eager PyTorch must be to be chosen."""
_ROUNDINGS = 64
"""How far an element of a gradient may be off, in units of the rounding error of the largest gradient."""
_TURNED = 0.05
"""Share of a gradient's norm that may change because rounding turns a ReLU on or off, or moves a maximum."""
_DIFFERENT = 1e-3
"""Share of integers that rounding may change, such as positions of maxima or results of comparisons."""


def measured(
    compiled: Function,
    module: GraphModule,
    options: Options,
    records: Sequence[GraphRecord],
    effects: Effects,
) -> Function:
    """Wrap ``compiled`` so that its second call measures whether eager PyTorch is faster.

    ``compiled`` was compiled from ``module``; ``records`` are the records of its graphs, and ``effects`` says
    what they do besides computing results. Returns ``compiled`` itself if the options, the settings or the
    function rule such a choice out.
    """
    if not options.fallback or not options.tuning or config.tuning_budget_s <= 0 or is_watched():
        return compiled
    if options.check_indices or options.check_values or options.passes:
        return compiled
    if any(True for _ in module.parameters()) or any(True for _ in module.buffers()):
        return compiled  # a trial copies the inputs only, so it could change parameters and buffers
    decisions = getattr(get_engine(options.engine, options.device), "decisions", None)
    if decisions is None:
        return compiled
    return MeasuredFunction(compiled, module, records, effects, decisions, options.specializations)


class MeasuredFunction:
    """A function whose second call measures whether the compiled programs or eager PyTorch run from then on.

    If sizes are symbolic, each set of sizes is measured separately. Only time and rounding depend on the
    choice: a function that has effects other than writing its inputs, such as drawing random numbers, always
    runs its compiled programs. Safe to call from several threads.
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
        """Maps sizes to the function that runs from now on; None before a measurement has chosen it."""
        self._lock = threading.Lock()  # protects the dictionary only

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
        # Hooks come from the user, or from activation checkpointing, which counts what is saved.
        if saved_tensors_hooked():
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
        """Set the state for ``key``, and return the one before."""
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
    """A captured function that runs in eager PyTorch, with PyTorch's own gradients.

    A graph may switch the recording of gradients off and on. If an error occurs in between, the recording is
    restored to what it was before the call.
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
    """Whether a trial leaves the user's values as they are if it gets copies of the ``written`` inputs."""
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
"""The types that inputs of a trial may have; others may have a state that a call changes."""


Trial = tuple[list[Any], Sequence[Any]]
"""The results and the gradients of one call."""


def _trial(function: Function, inputs: Sequence[Any], written: Iterable[int]) -> Trial:
    """Call ``function`` and, if it has gradients, its backward pass; return the results and the gradients.

    Each gradient is then read in eager PyTorch, as an optimizer would. The cost of that belongs to the trial,
    because it depends on the threads that the backward pass leaves behind.
    """
    given = [_detached(one, place in written) for place, one in enumerate(inputs)]
    # Restores the recording of gradients, which a graph may switch, if an error ends the call.
    with torch.set_grad_enabled(torch.is_grad_enabled()):
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
    """Return ``value`` detached from its autograd history, and as a copy if it is ``written``."""
    if not isinstance(value, torch.Tensor):
        return value
    alone = value.detach()
    return (alone.clone() if written or value.is_inference() else alone).requires_grad_(value.requires_grad)


def question(what: str, module: GraphModule, inputs: Sequence[Any]) -> dict[str, Any]:
    """Return what identifies a measurement: code, the inputs' dtypes, shapes and strides, and settings."""
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
    """Whether two trials agree up to rounding: results element by element, gradients as a whole.

    Rounding decides whether a ReLU passes a number close to zero, and which of two almost equal numbers is
    the maximum. Single elements of a gradient can then differ a lot. A gradient that is zero except for
    rounding errors has no digit in common between two ways to compute it. So a gradient that is small
    compared with the largest one may differ by rounding errors of the largest one.
    """
    # In eager PyTorch, gradients of embedding tables may be sparse.
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
        # PyTorch does not compute in float8, so compare the bits.
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
