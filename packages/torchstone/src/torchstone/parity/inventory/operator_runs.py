"""Compare the operators of the inventory with eager: artifacts in a fresh process, and gradients.

One program has all calls of one operator in all dtypes. If it fails, its halves are
tried, and so on, so that every call and dtype is judged by itself.
"""

from __future__ import annotations

import copy
import logging
import re
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy
import torch

from optest.core.comparator import compare

from ... import dtypes
from ...api import export, load
from ...compiler import bounds
from ...compiler.capture import capture
from ...compiler.graphs import to_numpy
from ..compilation import plain_errors, watched
from ..replay import run_all_fresh
from ..subject import differentiate
from .calls import CALLS, Bound, Call, Operator
from .calls.call import results

Key = tuple[str, str]
"""Family and name of an operator."""
Thing = TypeVar("Thing")

TRIED = [
    dtype.torch
    for dtype in sorted(dtypes.STANDARD | dtypes.UNSIGNED, key=lambda each: (each.kind, each.bits, each.name))
]
"""The dtypes in which each operator is tried."""

COMPOSITE = re.compile(r'stablehlo\.composite "([^"]+)"')
NOT_IN_EAGER = (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError)
"""The errors of eager PyTorch if it has no kernel for a dtype."""


@dataclass(frozen=True, eq=False)
class Item:
    """One call in one dtype, and eager PyTorch's results for it; ``bound`` is the call to compile."""

    key: Key
    call: Call
    dtype: torch.dtype
    bound: Bound
    expected: Sequence[torch.Tensor] = ()

    def in_eager(self, *, widen: bool = False) -> Item:
        """Return the item with the call that eager PyTorch runs, in float64 or complex128 if ``widen``."""
        bound = self.call.bind(self.dtype, eager=True)
        return Item(self.key, self.call, self.dtype, bound.to(_widest) if widen else bound)

    @property
    def dtype_name(self) -> str:
        """The name of the dtype, such as ``float32``."""
        return str(self.dtype).removeprefix("torch.")

    def __str__(self) -> str:
        return f"{self.call.text} in {self.dtype_name}"


class Calls(torch.nn.Module):
    """A module that makes the calls of several items in order: it takes all inputs, returns all results."""

    def __init__(self, items: Sequence[Item]) -> None:
        super().__init__()
        self.calls = [(item.bound.function, len(item.bound.inputs)) for item in items]
        self.parts = torch.nn.ModuleList(
            torch.nn.ModuleList(copy.deepcopy(list(item.bound.modules))) for item in items
        )

    def forward(self, *inputs: torch.Tensor) -> list[torch.Tensor]:
        found, place = [], 0
        for (function, count), part in zip(self.calls, self.parts, strict=True):
            found += results(function(*part.children(), *inputs[place : place + count]))
            place += count
        return found


@dataclass
class Forward:
    """The outcome for an operator: a complaint for each item (empty if equal), and its composites."""

    complaints: dict[Item, str] = field(default_factory=dict)
    composites: set[str] = field(default_factory=set)
    lowered: bool = False


def items_of(key: Key) -> list[Item]:
    """Return every call of an operator in every dtype that eager PyTorch has it in."""
    found = []
    for dtype in TRIED:
        for call in CALLS[key].calls:
            if not call.follows and dtype is not torch.int64:
                continue  # all its inputs are integers
            try:
                expected = call.bind(dtype, eager=True)()
            except NOT_IN_EAGER:
                continue
            found.append(Item(key, call, dtype, call.bind(dtype), expected))
    return found


def forward(keys: Sequence[Key]) -> dict[Key, Forward]:
    """Run the saved artifacts of operators in one fresh process without torch, and compare with eager."""
    found = {key: Forward() for key in keys}
    with tempfile.TemporaryDirectory(prefix="torchstone-") as folder, quiet():
        programs: list[tuple[Path, Sequence[Item]]] = []

        def save(items: Sequence[Item]) -> None:
            path = Path(folder, f"{len(programs)}.stone")
            outcome = found[items[0].key]
            outcome.composites |= _export(items, path)
            outcome.lowered = True
            programs.append((path, items))

        def run(chosen: Sequence[tuple[Path, Sequence[Item]]]) -> None:
            jobs = [(path, [to_numpy(each) for each in _inputs(items)]) for path, items in chosen]
            for (_, items), arrays in zip(chosen, run_all_fresh(jobs), strict=True):
                feed = iter(arrays)
                for item in items:
                    actual = [next(feed) for _ in item.expected]
                    truth = item.in_eager(widen=True).bound
                    found[item.key].complaints[item] = _judged(actual, item.expected, truth)

        for key in keys:
            for item, error in in_halves(items_of(key), save):
                found[key].complaints[item] = error
        for (_, items), error in in_halves(programs, run):
            for item in items:
                found[item.key].complaints[item] = error
    return found


def _export(items: Sequence[Item], path: Path) -> set[str]:
    """Write the artifact of ``items``, and return the names of its composites."""
    with torch.no_grad(), bounds(**(CALLS[items[0].key].bounds or {})):
        export(Calls(items), tuple(_inputs(items))).save(path)
    return composites_in(path)


def composites_in(path: Path) -> set[str]:
    """Return the composites in an artifact; raises :class:`AssertionError` if it has a custom call."""
    text = load(path).mlir_text()
    if "custom_call" in text:
        raise AssertionError("its program has a custom call")
    return set(COMPOSITE.findall(text))


def backward(keys: Sequence[Key]) -> dict[Key, str]:
    """Return for each operator ``equal``, ``none`` (eager has no gradient), or which gradient is wrong."""
    complaints: dict[Item, str] = {}

    def run(items: Sequence[Item]) -> None:
        complaints.update(judged_gradients(items))

    with quiet():
        chosen = [item for key in keys for item in _differentiable(key)]
        together = [item for item in chosen if not _apart(item)]
        apart = [[item for item in chosen if _apart(item) and item.key == key] for key in keys]
        for group in (together, *apart):
            complaints.update(in_halves(group, run))
    found = dict.fromkeys(keys, "none")
    for item, complaint in complaints.items():
        if found[item.key] in ("none", "equal"):
            found[item.key] = f"{item}: {complaint}" if complaint else "equal"
    return found


def _apart(item: Item) -> bool:
    """Whether the item is compiled with options of its own."""
    return item.call.ruled or bool(CALLS[item.key].in_eager)


def _differentiable(key: Key) -> list[Item]:
    """Return the calls that eager differentiates, in float32, or in complex64 if it cannot in float32."""
    found = []
    for call in CALLS[key].calls:
        for dtype in (torch.float32, torch.complex64) if call.follows and CALLS[key].trains else ():
            try:
                item = Item(key, call, dtype, call.bind(dtype))
                if not _gradients([item.in_eager()]):
                    continue
            except NOT_IN_EAGER:
                continue
            found.append(item)
            break
    return found


def judged_gradients(items: Sequence[Item]) -> dict[Item, str]:
    """Return a complaint, or "", about each item's gradients through ``torch.compile``.

    Raises :class:`AssertionError` for a graph break, and for a fallback that the operator does not name.
    """
    with watched() as compilation, plain_errors():
        found = _gradients(items, _prepared)
    fallbacks = set(compilation.fallbacks) - set(_operator(items).in_eager)
    if fallbacks or compilation.breaks:
        raise AssertionError(f"not one graph: {sorted(fallbacks or compilation.breaks)}")
    expected = _gradients([item.in_eager() for item in items])
    if found.keys() != expected.keys():
        raise AssertionError("differentiated other tensors than eager PyTorch")
    exact = cache(lambda: _gradients([item.in_eager(widen=True) for item in items]))
    judged = {}
    for place, item in enumerate(items):
        mine = [name for name in expected if name[0] == place]

        def truth(mine: Sequence[tuple[int, str]] = mine) -> list[torch.Tensor]:
            return [exact()[name] for name in mine]

        actual = [to_numpy(found[name]) for name in mine]
        judged[item] = _judged(actual, [expected[name] for name in mine], truth)
    return judged


def _operator(items: Sequence[Item]) -> Operator:
    """Return the inventory's entry for the calls, or a new one without options if it has none."""
    return CALLS.get(items[0].key, Operator([item.call for item in items]))


Prepare = Callable[[Calls, Sequence[Item]], Callable[..., Sequence[torch.Tensor]]]


def _prepared(model: Calls, items: Sequence[Item]) -> Callable[..., Sequence[torch.Tensor]]:
    """Compile ``model`` by ``torch.compile``; if it needs capture rules, capture it first."""
    operator = _operator(items)
    function: Callable[..., Any] = model
    if items[0].call.ruled:
        with bounds(**(operator.bounds or {})):
            function = capture(model, tuple(_inputs(items))).module()
    return torch.compile(function, backend="torchstone", options={"fallback": bool(operator.in_eager)})


def _gradients(
    items: Sequence[Item], prepare: Prepare = lambda model, items: model
) -> dict[tuple[int, str], torch.Tensor]:
    """Return dense gradients of inputs and parameters, by the item's position and the tensor's name.

    They are empty if no output requires a gradient; zeros for a leaf without influence.
    """
    model, inputs = Calls(items), _inputs(items)
    leaves: dict[tuple[int, str], torch.Tensor] = {}
    owners = [place for place, item in enumerate(items) for _ in item.bound.inputs]
    for position, (owner, each) in enumerate(zip(owners, inputs, strict=True)):
        if each.is_floating_point() or each.is_complex():
            leaves[owner, f"input {position}"] = each.requires_grad_()
    for name, parameter in model.named_parameters():
        leaves[int(name.split(".")[1]), name] = parameter
    outputs = list(prepare(model, items)(*inputs))
    if not any(output.requires_grad for output in outputs):
        return {}
    names = {f"{place} {name}": (place, name) for place, name in leaves}
    found = differentiate(outputs, {text: leaves[pair] for text, pair in names.items()})
    return {
        pair: torch.zeros_like(leaves[pair]) if gradient is None else gradient.to_dense()
        for text, pair in names.items()
        for gradient in [found[text]]
    }


def _inputs(items: Sequence[Item]) -> list[torch.Tensor]:
    """Return copies of the inputs of all items."""
    return [each.clone() for item in items for each in item.bound.inputs]


def _judged(
    actual: Sequence[numpy.ndarray[Any, Any]],
    expected: Sequence[torch.Tensor],
    truth: Callable[[], Sequence[torch.Tensor]],
) -> str:
    """Describe the first wrong result; empty if none is. Float64 decides if the tolerance is missed."""
    for place, (have, want) in enumerate(zip(actual, expected, strict=True)):
        result = compare(have, to_numpy(want))
        if not result.passed and result.same_form and (want.is_floating_point() or want.is_complex()):
            try:
                reference = to_numpy(truth()[place])
            except NOT_IN_EAGER:
                return result.summary()  # eager cannot compute in a wider dtype
            result = compare(have, to_numpy(want), reference=reference)
        if not result.passed:
            return result.summary()
    return ""


def in_halves(things: Sequence[Thing], run: Callable[[Sequence[Thing]], None]) -> list[tuple[Thing, str]]:
    """Run all things together, or in halves if that fails; return those that fail alone, with the error."""
    if not things:
        return []
    try:
        run(things)
    except Exception as error:  # noqa: BLE001 - whatever a compiler raises is the answer
        if len(things) == 1:
            said = " ".join(str(error).partition("\n  next:")[0].split())
            return [(things[0], f"{type(error).__name__}: {said}")]
        middle = len(things) // 2
        return in_halves(things[:middle], run) + in_halves(things[middle:], run)
    return []


def in_eager(overloads: Sequence[str]) -> str:
    """Return the message for overloads that compiled training leaves to eager PyTorch."""
    return f"compiled training leaves {', '.join(overloads)} to eager PyTorch"


def _widest(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    return tensor.double() if tensor.is_floating_point() else tensor


@contextmanager
def quiet() -> Iterator[None]:
    """Silence PyTorch's warnings and logs inside the block; failures are in the results."""
    level = logging.root.manager.disable
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.ERROR)
        try:
            yield
        finally:
            logging.disable(level)
