"""Overloads called by hand, exported and compiled, with arguments that autograd never passes.

Each input of the campaign is one overload of the registry with some calls of it: its samples with one or
two arguments changed. Tensors get other dtypes, shapes, strides and values, numbers become unusual, flags
flip, and optional arguments become None or a tensor. If eager PyTorch accepts a call, Torchstone must give
eager's values or a clear refusal. No call may end in an internal error. The campaign does not compare calls
that eager refuses, random numbers, results that eager itself does not repeat, and results without one right
value (:mod:`comparable_calls`).
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch._dynamo.exc import TorchRuntimeError

import torchstone
from torchstone.compiler.graphs import to_numpy
from torchstone.errors import LoweringBug, TorchstoneError
from torchstone.lowering import load
from torchstone.parity.operators import Sample, compare_outputs, eager_results
from torchstone.torch_internals import pytree
from torchstone.torch_internals.fake import FakeTensorMode
from torchstone.torch_internals.operators import OpOverload, schema_of

sys.path.append(str(Path(__file__).parents[2] / "packages" / "torchstone" / "tests"))

from comparable_calls import is_compared, is_defined

from operator_samples import SampleSet, load_samples

_CALLS = 8
_MOST_ELEMENTS = 50_000
_INTS = (-1, 0, 1, 2, 3, -2, 5, 7, -100)
_FLOATS = (0.0, -1.0, 0.5, 2.0, float("inf"), float("nan"), -0.0, 1e-30)
_DTYPES = (
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64),
    *(torch.int64, torch.int32, torch.uint8, torch.int8, torch.bool),
)


@dataclass(frozen=True)
class Made:
    overload: OpOverload
    calls: tuple[Sample, ...]
    compiled: bool

    @property
    def what(self) -> str:
        return f"{self.overload}: " + "; ".join(map(str, self.calls))


def prepare(seed: int, folder: Path) -> Tries:
    del folder
    logging.getLogger("torch").setLevel(logging.CRITICAL)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)  # a forked child has none of this process's threads
    return Tries(seed)


class Tries:
    """Makes and tries inputs. ``number`` and ``number + len(samples)`` are inputs of the same overload."""

    def __init__(self, seed: int) -> None:
        registry = load()
        self._seed = seed
        self._samples = [
            one for one in load_samples().values() if one.overload in registry and not one.random
        ]
        self._samples.sort(key=lambda one: str(one.overload))

    def make(self, number: int) -> Made:
        chosen = self._samples[number % len(self._samples)]
        chance = random.Random(f"{self._seed} {number}")
        return Made(chosen.overload, tuple(_calls(chosen, chance)), number % 4 == 0)

    def attempt(self, made: Made) -> tuple[str, str]:
        calls = list(_survived(made.overload, made.calls))
        taken = [call for call in calls if _repeats(made.overload, call) and is_compared(made.overload, call)]
        refused = [call for call in calls if all(call is not one for one in taken)]
        defects = list(wrong(made.overload, taken, _exported))
        if made.compiled:
            defects += wrong(made.overload, taken, _compiled)
        defects += _internal(made.overload, refused)
        ended = "compiled" if made.compiled else "exported"
        return ended if taken else "refused", "\n".join(defects)


def _calls(samples: SampleSet, chance: random.Random) -> Iterator[Sample]:
    registered = load().get(samples.overload)
    dtypes = sorted((one.torch for one in registered.dtypes), key=str)
    made = [one for dtype in chance.sample(dtypes, min(2, len(dtypes))) for one in samples.make(dtype)]
    made = [one for one in made if one.canonical is None]
    for _ in range(_CALLS if made else 0):
        call = chance.choice(made)
        for _ in range(chance.choice([1, 1, 2])):
            call = _changed(samples.overload, call, chance)
        small = all(one.numel() <= _MOST_ELEMENTS for one in call.tensors())
        if small and is_defined(samples.overload, call):
            yield call


def _changed(overload: OpOverload, call: Sample, chance: random.Random) -> Sample:
    """``call`` with another value for one argument.

    Calls of Torchstone's own operators come from capture rules, which check their arguments. In these calls,
    only elements, strides, and lists of numbers change.
    """
    schema = schema_of(overload)
    places = [*range(len(call.args)), *call.kwargs]
    if overload.namespace == "torchstone":
        given = {**dict(enumerate(call.args)), **call.kwargs}
        places = [place for place in places if type(given[place]) not in (int, float)]
    absent = [one.name for one in schema.arguments[len(call.args) :] if one.name not in call.kwargs]
    place = chance.choice([*places, *absent[:2]])
    args, kwargs = list(call.args), dict(call.kwargs)
    argument = (
        schema.arguments[place]
        if isinstance(place, int)
        else next(one for one in schema.arguments if one.name == place)
    )
    before = args[place] if isinstance(place, int) else kwargs.get(place, argument.default_value)
    after = _other(before, str(argument.real_type), call, chance)
    if overload.namespace == "torchstone" and _forms(before) != _forms(after):
        return call
    if isinstance(place, int):
        args[place] = after
    else:
        kwargs[place] = after
    return Sample(tuple(args), kwargs)


def _forms(value: Any) -> list[Any]:
    leaves = pytree.tree_leaves(value)
    return [(one.dtype, one.shape) if isinstance(one, torch.Tensor) else type(one) for one in leaves]


def _other(value: Any, kind: str, call: Sample, chance: random.Random) -> Any:
    if "MemoryFormat" in kind:
        return value  # PyTorch accepts any integer, and then aborts
    if kind.startswith("Optional") and value is not None and chance.random() < 0.5:
        return None
    if isinstance(value, torch.Tensor):
        return _other_tensor(value, chance)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return chance.choice([one for one in _INTS if one != value])
    if isinstance(value, float):
        return chance.choice(_FLOATS)
    if isinstance(value, torch.dtype) or (value is None and "ScalarType" in kind):
        return chance.choice(_DTYPES)
    if isinstance(value, (list, tuple)) and value:
        place = chance.randrange(len(value))
        items = list(value)
        items[place] = _other(items[place], "", call, chance)
        return items
    if value is None and "Tensor" in kind and call.tensors():
        return _other_tensor(chance.choice(call.tensors()), chance)
    if value is None:
        plain = {"int": chance.choice(_INTS), "float": chance.choice(_FLOATS), "bool": True}
        return next((one for name, one in plain.items() if kind == f"Optional[{name}]"), None)
    return value


def _other_tensor(tensor: torch.Tensor, chance: random.Random) -> torch.Tensor:
    changes: list[Callable[[], torch.Tensor]] = [
        lambda: tensor.to(chance.choice(_DTYPES)),
        lambda: tensor.reshape(-1)[:1].reshape(()),
        lambda: tensor[:0],
        lambda: tensor[:1],
        lambda: tensor[None],
        lambda: tensor.reshape(-1),
        lambda: torch.zeros_like(tensor),
        lambda: torch.ones_like(tensor),
        lambda: tensor.flip(0),
        lambda: tensor.mT.contiguous().mT,
        lambda: tensor[:1].expand(tensor.shape),
        lambda: tensor.repeat_interleave(2, -1)[..., ::2],
        lambda: tensor.roll(1, -1),
        lambda: torch.full_like(tensor, chance.choice([float("nan"), float("inf"), -1, 1e30])),
    ]
    for _ in range(5):
        try:
            return chance.choice(changes)()
        except (RuntimeError, IndexError):  # it has no such dimension, or no such dtype
            continue
    return tensor


def _own(call: Sample) -> Sample:
    """Return the call with copies of its tensors."""
    return call.map(torch.Tensor.clone)


def _survived(overload: OpOverload, calls: Sequence[Sample]) -> Iterator[Sample]:
    """Yield the calls that do not crash eager PyTorch. Each is tried in a child process of its own."""
    for call in calls:
        child = os.fork()
        if not child:
            with contextlib.suppress(Exception):
                eager_results(overload, _own(call))
            os._exit(0)
        if os.waitpid(child, 0)[1] == 0:
            yield call


def _repeats(overload: OpOverload, call: Sample) -> bool:
    """Whether eager PyTorch accepts the call and returns the same results twice."""
    try:
        first, second = (eager_results(overload, _own(call)) for _ in range(2))
        torch.testing.assert_close(first, second, rtol=0, atol=0, equal_nan=True)
    except Exception:  # noqa: BLE001  # whatever it raises
        return False
    return bool(first)


Runner = Callable[[Callable[..., Any], Sequence[torch.Tensor]], Any]


def _exported(function: Callable[..., Any], tensors: Sequence[torch.Tensor]) -> Any:
    return torchstone.export(function, tuple(tensors))(*tensors)


def _compiled(function: Callable[..., Any], tensors: Sequence[torch.Tensor]) -> Any:
    torch._dynamo.reset()
    return torch.compile(function, backend="torchstone")(*tensors)


def wrong(overload: OpOverload, calls: Sequence[Sample], run: Runner) -> Iterator[str]:
    """Yield what is wrong with calls that eager accepts.

    All calls are in one program. If that fails, each is in its own.
    """
    if not calls:
        return
    try:
        found = _results(overload, calls, run)
    except Exception as error:  # noqa: BLE001  # looked at below
        if len(calls) > 1:
            for call in calls:
                yield from wrong(overload, [call], run)
        elif not _is_clear(error):
            yield f"{run.__name__[1:]} {overload}: {calls[0]}\n  {type(error).__name__}: {str(error)[:800]}"
        return
    for call, have in zip(calls, found, strict=True):
        want = eager_results(overload, _own(call))
        if len(have) != len(want):
            yield f"{run.__name__[1:]} {overload}: {call}\n  {len(have)} results instead of {len(want)}"
            continue
        if [one.dtype for one in have] != [one.dtype for one in want]:
            want = _promised(overload, call, want)
        comparisons = compare_outputs(overload, _own(call), map(to_numpy, have), want)
        if not all(one.passed for one in comparisons):
            told = "; ".join(one.describe() for one in comparisons if not one.passed)
            yield f"{run.__name__[1:]} {overload}: {call}\n  {told[:800]}"


def _results(overload: OpOverload, calls: Sequence[Sample], run: Runner) -> list[list[torch.Tensor]]:
    def function(*tensors: torch.Tensor) -> list[Any]:
        feed = iter(tensors)
        made = [call.map(lambda _: next(feed)) for call in calls]
        return [overload(*one.args, **one.kwargs) for one in made]

    own = [tensor for call in calls for tensor in _own(call).tensors()]
    found = run(function, own)
    return [[leaf for leaf in pytree.tree_leaves(one) if isinstance(leaf, torch.Tensor)] for one in found]


def _promised(overload: OpOverload, call: Sample, want: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return eager's results in the dtypes that PyTorch's metadata promise. Some kernels return others."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        dtypes = [one.dtype for one in eager_results(overload, call)]
    if len(dtypes) != len(want):
        return want
    return [one.to(dtype) for one, dtype in zip(want, dtypes, strict=True)]


def _is_clear(error: BaseException) -> bool:
    """Whether an error is a refusal in words for the user, and no sign that something inside went wrong."""
    chain: list[BaseException] = []
    while error is not None:
        chain.append(error)
        error = error.__cause__ or error.__context__
    if any(isinstance(one, LoweringBug) or "LoweringBug" in str(one) for one in chain):
        return False
    # Dynamo's error says that PyTorch cannot trace the call, whatever the backend.
    return any(isinstance(one, (TorchRuntimeError, TorchstoneError)) for one in chain)


def _internal(overload: OpOverload, calls: Sequence[Sample]) -> Iterator[str]:
    """Yield the internal errors of calls that eager refuses or whose values are not compared."""
    for call in calls:
        try:
            _results(overload, [call], _exported)
        except Exception as error:  # noqa: BLE001  # looked at
            if not _is_clear(error):
                yield f"refused {overload}: {call}\n  {type(error).__name__}: {str(error)[:800]}"
