"""Phases: turn an entry's samples into cases, each with a call and eager PyTorch's answer.

One function per phase makes the plain cases of a group; :func:`planned` adds the answers
of eager PyTorch. Not here: judging (``verdict``).
"""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from ...errors import text_of
from ..internals import tree_map_only
from .additions import additions
from .calls import FORWARD, FORWARD_MODE, GRADIENT, SECOND_ORDER, Call, Tensor, copied, evaluate, written
from .databases import entries_of
from .devices import Held, Transferred, WrittenThrough
from .groups import Group
from .modules import modules, optimizers
from .samples import Bound, note_of, widened

_Plain = tuple[Bound, str, tuple[type[BaseException], str] | None]
"""What a phase makes from a sample: the bound call, its kind, and the error it must raise, if any."""


@dataclass
class Case:
    """One sample in a phase.

    ``expected`` is eager's answer; ``truth`` computes the same in wider dtypes. ``skipped``
    says why eager has no answer. ``raises`` is the type and message pattern of the error that
    the call must raise. ``among`` is how many samples the group has, whether or not they run.
    """

    number: int
    bound: Bound
    call: Call
    note: str
    expected: list[Tensor] = field(default_factory=list)
    skipped: str = ""
    raises: tuple[type[BaseException], str] | None = None
    among: int = 0
    formed: bool = False
    """Whether the call is the bounded or determined form of the entry (``bounded``, ``determined``)."""

    def truth(self) -> list[Tensor]:
        """Return eager's answer in wider dtypes; raise eager's own error if it has no kernels for them."""
        return evaluate(self.call.run.map(_wide_copy, self.bound.function(wide=True)))


def _wide_copy(tensor: Tensor) -> Tensor:
    return widened(copied(tensor))


@dataclass(frozen=True)
class Planned:
    """A case that eager PyTorch has not run yet; ``make()`` runs it and returns the :class:`Case`."""

    number: int
    make: Callable[..., Case]
    """``make(tensors=None)``; ``tensors`` replace the sample's own tensors if given."""


def planned(group: Group, numbers: Iterable[int] | None = None, most: int | None = None) -> list[Planned]:
    """Return the cases of a group in order; they are the same on every machine.

    ``numbers`` selects samples. ``most`` limits how many are returned; samples with different
    notes are then preferred.
    """
    with _seeding_present_devices():
        plain = list(_plain_cases(group))
    chosen = range(len(plain)) if numbers is None else [one for one in numbers if one < len(plain)]
    if most is not None:
        chosen = _most([plain[number][0] for number in chosen], chosen, most)

    def make(number: int, tensors: Sequence[Tensor] | None = None) -> Case:
        bound, kind, raises = plain[number]
        if tensors is not None:
            like = zip(tensors, bound.tensors, strict=True)
            bound = bound.on([one.detach().requires_grad_(own.requires_grad) for one, own in like])
        return replace(_case(group, number, bound, kind, raises), among=len(plain))

    return [Planned(number, partial(make, number)) for number in chosen]


def cases_of(group: Group, numbers: Iterable[int] | None = None, most: int | None = None) -> Iterator[Case]:
    """Yield the cases that :func:`planned` returns, making each when it is needed."""
    return (one.make() for one in planned(group, numbers, most))


def _plain_cases(group: Group) -> Iterable[_Plain]:
    info, dtype = entries_of(group.suite)[group.entry].info, getattr(torch, group.dtype)
    seed_everything(group.number)
    if group.suite == "module":
        return modules(GRADIENT if group.phase == "backward" else FORWARD, info, dtype)
    if group.suite == "optim":
        return optimizers(info, dtype)
    return _MAKERS[group.phase](info, dtype)


def _most(bounds: Sequence[Bound], numbers: Sequence[int], most: int) -> list[int]:
    """Choose ``most`` of the numbers: the first sample with each note, then the second ones, and so on."""
    seen: Counter[str] = Counter()
    ranked = []
    for bound, number in zip(bounds, numbers, strict=True):
        note = note_of(bound.tensors)
        ranked.append((seen[note], number))
        seen[note] += 1
    return sorted(number for _, number in sorted(ranked)[:most])


@contextmanager
def _seeding_present_devices() -> Iterator[None]:
    """Make ``torch.manual_seed`` skip devices that the machine lacks, inside the context.

    The databases set the seed for every sample. For each missing device, PyTorch would format a stack
    trace to set its seed later, which is slow.
    """
    with ExitStack() as stack:
        for device in (torch.cuda, torch.xpu, torch.mtia):
            if not device.is_available():
                stack.enter_context(patch.object(device, "manual_seed_all", lambda seed: None))
        yield


def seed_everything(number: int) -> None:
    """Seed every random generator that samples are drawn from."""
    torch.manual_seed(number % 2**63)
    np.random.seed(number % 2**32)  # the databases draw from it
    random.seed(number)


def _case(
    group: Group, number: int, bound: Bound, kind: str, raises: tuple[type[BaseException], str] | None
) -> Case:
    tensors = bound.tensors
    wrt = tuple(i for i, one in enumerate(tensors) if one.requires_grad) if kind != FORWARD else ()
    call = Call(bound.function(), tuple(one.detach() for one in tensors), kind, wrt)
    case = Case(number, bound, call, note_of(tensors), raises=raises)
    if raises is not None:
        case.skipped = _not_raised(case)
        return case
    generator = torch.Generator().manual_seed(int(group.case_id(number), 16) % 2**63)
    try:
        case.call = _weighted(case, generator)
        if group.phase == "dynamic_batch":
            case.call = _resized(case.call)
        given = case.call.map(copied)
        case.expected = [one.detach() for one in evaluate(given.run)]
    except Exception as error:  # noqa: BLE001  # whatever eager raises: it has no answer to compare with
        case.skipped = (
            f"eager PyTorch raises {type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
        )
        return case
    case.call = replace(case.call, results=len(case.expected), writes=tuple(written(given, case.call)))
    if not case.expected:
        case.skipped = "nothing in its result is a tensor or number that could be compared"
    return case


def _resized(call: Call) -> Call:
    """Return the call with a smaller batch to run on, after it is compiled for the full one.

    Every tensor whose first dimension has the batch size loses its last row.
    """
    size = _batch_size(call.tensors)
    cut = (one[:-1].clone() if one.dim() and one.shape[0] == size else one for one in call.tensors)
    return replace(call, resized=tuple(cut))


def _not_raised(case: Case) -> str:
    """Return why eager PyTorch does not raise the error that the sample declares; empty if it does."""
    assert case.raises is not None
    kind, pattern = case.raises
    try:
        evaluate(case.call.map(copied))
    except Exception as error:  # noqa: BLE001  # which one it is, is the question
        if raised(error, kind, pattern):
            return ""
        return f"eager PyTorch raises {type(error).__name__} instead of {kind.__name__}"
    return "eager PyTorch on the CPU takes it"


def raised(error: BaseException | None, kind: type[BaseException], pattern: str) -> bool:
    """Whether ``error``, or an exception in its cause chain, has type ``kind`` and a matching message."""
    while error is not None:
        if isinstance(error, kind) and re.search(pattern, text_of(error)):
            return True
        error = error.__cause__ or error.__context__
    return False


def _weighted(case: Case, generator: torch.Generator) -> Call:
    """Return the call with random weights for its outputs, if its kind needs any."""
    call = case.call
    if call.kind == FORWARD:
        return call
    if not call.wrt:
        raise ValueError("none of the sample's tensors is to be differentiated")
    draw = partial(_drawn, generator)
    with torch.enable_grad():
        leaves = [
            copied(one).requires_grad_() if place in call.wrt else copied(one)
            for place, one in enumerate(call.tensors)
        ]
        outputs = call.function(*leaves)
    kept = tuple(place for place, one in enumerate(outputs) if one.requires_grad)
    if not kept:
        raise ValueError("none of the sample's results is differentiable")
    case.bound = replace(case.bound, then=_Picked(case.bound.then, kept))
    call = replace(call, function=case.bound.function())
    if call.kind == FORWARD_MODE:
        return replace(call, weights=tuple(draw(call.tensors[place]) for place in call.wrt))
    call = replace(call, weights=tuple(draw(outputs[place]) for place in kept))
    if call.kind == GRADIENT:
        return call
    first = evaluate(replace(call.map(copied), kind=GRADIENT))
    return replace(call, second_weights=tuple(draw(one) for one in first))


@dataclass(frozen=True)
class _Picked:
    """A function that applies ``then`` to a result, and returns its tensors at ``places``."""

    then: Callable[[Any], Any] | None
    places: tuple[int, ...]

    def __call__(self, result: Any) -> Any:
        from .samples import tensors_of

        found = tensors_of(result if self.then is None else self.then(result))
        return [found[place] for place in self.places]


def _drawn(generator: torch.Generator, like: Tensor) -> Tensor:
    wide = torch.complex128 if like.is_complex() else torch.float64
    return torch.randn(like.shape, generator=generator, dtype=wide).to(like.dtype)


# What each phase makes of an entry -------------------------------------------------------


def _forward(info: Any, dtype: torch.dtype) -> Iterator[_Plain]:
    for sample in info.sample_inputs("cpu", dtype):
        yield Bound(info.op, (sample.input, *sample.args), sample.kwargs), FORWARD, None
    for bound in additions(info, dtype):
        yield bound, FORWARD, None


def _batched(info: Any, dtype: torch.dtype) -> Iterator[_Plain]:
    """Yield the samples with a batch size of at least 3.

    They can also run on a batch that is one smaller; a batch of 1 would broadcast.
    """
    return (one for one in _forward(info, dtype) if _batch_size(one[0].tensors) >= 3)


def _sized(info: Any, dtype: torch.dtype) -> list[_Plain]:
    """Return the samples, with those last in which every tensor has fewer than two elements.

    Such small samples have no sizes that could be varied.
    """
    return sorted(_forward(info, dtype), key=lambda one: all(t.numel() < 2 for t in one[0].tensors))


def _batch_size(tensors: Iterable[Tensor]) -> int:
    return next((one.shape[0] for one in tensors if one.dim()), 0)


def _noncontiguous(info: Any, dtype: torch.dtype) -> Iterator[_Plain]:
    for sample in info.sample_inputs("cpu", dtype):
        spaced = sample.noncontiguous()
        yield Bound(info.op, (spaced.input, *spaced.args), spaced.kwargs), FORWARD, None


def _reference(info: Any, dtype: torch.dtype) -> Iterator[_Plain]:
    for sample in info.reference_inputs("cpu", dtype):
        yield Bound(info.op, (sample.input, *sample.args), sample.kwargs), FORWARD, None


def _special(info: Any, dtype: torch.dtype) -> Iterator[_Plain]:
    for sample in info.sample_inputs("cpu", dtype):
        places = count()
        changed = sample.transform(lambda one, places=places: _with_specials(one, places))
        yield Bound(info.op, (changed.input, *changed.args), changed.kwargs), FORWARD, None


_SPECIALS = (math.nan, math.inf, -math.inf, -0.0)


def _with_specials(leaf: Any, places: Iterator[int]) -> Any:
    """Return a floating-point tensor with special values spread over it.

    ``places`` makes each tensor start with another special value. A tensor that is too small for
    all of them gets one NaN.
    """
    if not isinstance(leaf, Tensor) or not (leaf.is_floating_point() or leaf.is_complex()):
        return leaf
    if leaf.layout is not torch.strided or leaf.is_quantized or not leaf.numel():
        return leaf
    first, flat = next(places), leaf.detach().clone().reshape(-1)
    if flat.numel() < 2 * len(_SPECIALS):
        flat[flat.numel() // 2] = math.nan
    else:
        for place in range(len(_SPECIALS)):
            flat[place * flat.numel() // len(_SPECIALS)] = _SPECIALS[(first + place) % len(_SPECIALS)]
    return flat.reshape(leaf.shape)


def _differentiated(kind: str, info: Any, dtype: torch.dtype) -> Iterator[_Plain]:
    for sample in info.sample_inputs("cpu", dtype, requires_grad=True):
        args = (sample.input, *sample.args)
        yield Bound(info.op, args, sample.kwargs, sample.output_process_fn_grad), kind, None


def _out(info: Any, dtype: torch.dtype) -> Iterator[_Plain]:
    for sample in info.sample_inputs("cpu", dtype):
        args = (sample.input, *sample.args)
        try:
            template = info.op(*_copies(args), **sample.kwargs)
        except Exception:  # noqa: BLE001  # the forward phase reports what eager refuses
            continue
        yield Bound(_IntoOut(info.op), (template, *args), sample.kwargs), FORWARD, None


@dataclass(frozen=True)
class _IntoOut:
    """Calls ``function(…, out=…)`` with fresh tensors shaped like ``template``'s and filled with ones."""

    function: Callable[..., Any]

    def __call__(self, template: Any, *args: Any, **kwargs: Any) -> Any:
        target = tree_map_only(Tensor, lambda one: torch.ones_like(one), template)
        returned = self.function(*args, **kwargs, out=target)
        return target, returned


def _copies(args: tuple[Any, ...]) -> tuple[Any, ...]:
    return tree_map_only(Tensor, lambda one: copied(one.detach()), args)


def _inplace(info: Any, dtype: torch.dtype) -> Iterator[_Plain]:
    for sample in info.sample_inputs("cpu", dtype):
        if not sample.broadcasts_input:
            args = (sample.input, *sample.args)
            yield Bound(_OnCopy(info.get_inplace()), args, sample.kwargs), FORWARD, None


@dataclass(frozen=True)
class _OnCopy:
    """Calls an in-place function on a copy of its first argument; returns the copy and the result."""

    function: Callable[..., Any]

    def __call__(self, first: Any, *args: Any, **kwargs: Any) -> Any:
        target = tree_map_only(Tensor, lambda one: one.clone(), first)
        returned = self.function(target, *args, **kwargs)
        return target, returned


def _views(info: Any, dtype: torch.dtype) -> Iterator[_Plain]:
    for sample in info.sample_inputs("cpu", dtype):
        args = (sample.input, *sample.args)
        yield Bound(WrittenThrough(info.op), args, sample.kwargs), FORWARD, None


def _memory(info: Any, dtype: torch.dtype) -> Iterator[_Plain]:
    for sample in info.sample_inputs("cpu", dtype):
        yield Bound(Held(info.op), (sample.input, *sample.args), sample.kwargs), FORWARD, None


def _transfer(info: Any, dtype: torch.dtype) -> Iterator[_Plain]:
    for sample in info.sample_inputs("cpu", dtype):
        yield Bound(Transferred(info.op), (sample.input, *sample.args), sample.kwargs), FORWARD, None


def _errors(info: Any, dtype: torch.dtype) -> Iterator[_Plain]:
    for wrong in info.error_inputs("cpu"):
        sample = wrong.sample_input
        bound = Bound(info.op, (sample.input, *sample.args), sample.kwargs)
        yield bound, FORWARD, (wrong.error_type, str(wrong.error_regex))


_PROMOTED = (torch.bool, torch.uint8, torch.int32, torch.int64, torch.float16, torch.float32, torch.float64)


def _promotion(info: Any, dtype: torch.dtype) -> Iterator[_Plain]:
    """Yield calls on two operands of different dtypes, also with a 0-d one, and calls on Python numbers."""
    from torch.testing import make_tensor

    make = partial(make_tensor, device="cpu", low=1, high=5)
    one = make((3,), dtype=dtype)
    if type(info).__name__ != "BinaryUfuncInfo":
        yield Bound(info.op, (one,), _required(info, one)), FORWARD, None
        return
    for other in _PROMOTED:
        yield Bound(info.op, (one, make((3,), dtype=other))), FORWARD, None
        yield Bound(info.op, (one, make((), dtype=other))), FORWARD, None
        yield Bound(info.op, (make((), dtype=dtype), make((3,), dtype=other))), FORWARD, None
    for number in (2, 1.5):
        yield Bound(info.op, (one, number)), FORWARD, None


def _required(info: Any, operand: Tensor) -> dict[str, Any]:
    """Return the further arguments that a function of one tensor requires, such as ``p`` of ``mvlgamma``."""
    sample_kwargs = getattr(info, "sample_kwargs", None)
    return {} if sample_kwargs is None else sample_kwargs("cpu", operand.dtype, operand)[0]


_MAKERS: dict[str, Callable[[Any, torch.dtype], Iterable[_Plain]]] = {
    "forward": _forward,
    "backward": partial(_differentiated, GRADIENT),
    "second_order": partial(_differentiated, SECOND_ORDER),
    "forward_mode": partial(_differentiated, FORWARD_MODE),
    "out": _out,
    "inplace": _inplace,
    "noncontiguous": _noncontiguous,
    "reference": _reference,
    "special": _special,
    "views": _views,
    "memory": _memory,
    "transfer": _transfer,
    "errors": _errors,
    "promotion": _promotion,
    "determinism": _forward,
    "dynamic_batch": _batched,
    "automatic_dynamic": _sized,
    "perf": _forward,
    "stress": _forward,
}
