"""The phase ``automatic_dynamic``: calls one compiled function several times with different sizes.

PyTorch compiles the first call for fixed sizes. It compiles a later call with symbols for the sizes
and numbers that changed. Each call must return eager's values, dtypes and strides, and its results must
share memory with the same inputs and results as eager's. Not here: how a driver runs the calls
(``answer_in_turn``).
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from ...backends.driver import Answer, CallDriver
from ...core.comparator import compare
from ...core.interrupt import is_ctrl_c
from ...core.result import Status
from ...running.execution import tail
from ..internals import tree_flatten
from .bounded import formed
from .calls import Tensor, copied, dense, evaluate, written
from .distribution import is_random
from .groups import Group
from .phases import Case, planned
from .samples import Bound, resized, tensors_of
from .verdict import Fields, array_of, by_form, by_value, mismatch

CALLS = 3
"""How often one compiled function is called."""


def by_turns(driver: CallDriver, group: Group, cases: Sequence[Case], kind: str) -> Iterator[Fields]:
    """Run each case and yield the fields of its record; ``kind`` is the class of the cases' entry."""
    every = [one.make() for one in planned(group)] if cases else []
    for case in cases:
        turns = series(case, _peers(case, every))
        if kind:
            turns = [formed(group, one) for one in turns]
        if len(turns) < CALLS:
            reason = f"eager PyTorch takes {len(turns)} sizes of this sample; {CALLS} are needed"
            yield {"status": Status.SKIPPED, "reason": reason}
        else:
            yield _judged(driver, turns, kind)


def series(case: Case, peers: Sequence[Case]) -> list[Case]:
    """Return ``case`` followed by cases with other sizes, ``CALLS`` in all if there are that many.

    Peers are taken as they are first; then resized copies of the peers and of ``case``.
    """
    found = [case]
    seen = {_sizes(case)}
    for one in _candidates([*peers, case]):
        if len(found) == CALLS:
            break
        if _sizes(one) not in seen:
            seen.add(_sizes(one))
            found.append(one)
    return found


def _candidates(cases: Sequence[Case]) -> Iterator[Case]:
    yield from cases
    for place in range(CALLS):
        for case in cases[place:] or cases[-1:]:
            yield from _resized(case)


def _sizes(case: Case) -> tuple[Any, ...]:
    """Return what PyTorch's symbols stand for: the shapes of the tensors or, if all are 0-d, the numbers."""
    shapes = tuple(tuple(one.shape) for one in case.call.tensors)
    return shapes if any(shapes) else tuple(leaf for leaf in case.bound.leaves if _is_number(leaf))


def _peers(case: Case, every: Sequence[Case]) -> list[Case]:
    """Return the samples that differ from ``case`` only in sizes and numbers, those after it first."""
    ordered = [*every[case.number + 1 :], *every[: case.number]]
    structure = _structure(case.bound)
    return [one for one in ordered if not one.skipped and _structure(one.bound) == structure]


def _structure(bound: Bound) -> tuple[Any, ...]:
    leaves, spec = tree_flatten((tuple(bound.args), dict(bound.kwargs)))
    return (bound.target, bound.then, spec, [_kind(leaf) for leaf in leaves])


def _kind(leaf: Any) -> tuple[Any, ...]:
    if isinstance(leaf, Tensor):
        return (Tensor, leaf.dtype, leaf.layout, leaf.dim())
    return (type(leaf),) if _is_number(leaf) else (type(leaf), repr(leaf))


def _is_number(leaf: Any) -> bool:
    return isinstance(leaf, int | float) and not isinstance(leaf, bool)


# Other sizes -----------------------------------------------------------------------------


def _resized(case: Case) -> Iterator[Case]:
    """Yield the case with a size changed by 1 or 2: each size in all its dimensions, then single dimensions.

    Smaller sizes come first, because a leading part of a positive definite matrix is positive definite.
    """
    tensors = case.call.tensors
    if any(one.layout is not torch.strided or one.is_quantized for one in tensors):
        return
    dims = [(place, dim) for place, one in enumerate(tensors) for dim in range(one.dim())]
    sizes = sorted({tensors[place].shape[dim] for place, dim in dims} - {0, 1}, reverse=True)
    together = [[(p, d) for p, d in dims if tensors[p].shape[d] == size] for size in sizes]
    single = [[one] for one in dims if tensors[one[0]].shape[one[1]] > 1]
    for chosen in (*together, *single):
        size = tensors[chosen[0][0]].shape[chosen[0][1]]
        for new in (size - 1, size - 2, size + 1, size + 2):
            if new >= 2 and (made := _remade(case, chosen, new)) is not None:
                yield made


def _remade(case: Case, dims: Iterable[tuple[int, int]], size: int) -> Case | None:
    """Return the case with the given dimensions cut or repeated to ``size``; None if eager refuses it."""
    tensors = resized(case.call.tensors, dims, size)
    call = replace(case.call, tensors=tuple(tensors))
    given = call.map(copied)
    try:
        expected = [one.detach() for one in evaluate(given)]
    except Exception:  # noqa: BLE001  # eager may refuse these sizes with any exception
        return None
    if len(expected) != len(case.expected):
        return None
    call = replace(call, writes=tuple(written(given, call)))
    return replace(case, bound=case.bound.on(tensors), call=call, expected=expected)


# What is seen ----------------------------------------------------------------------------


def _judged(driver: CallDriver, turns: Sequence[Case], kind: str) -> Fields:
    """Return the fields for the first call that differs from eager's, or for the last one if none does."""
    bound = turns[0].bound

    def function(*args: Any, **kwargs: Any) -> Any:
        result = bound.target(*args, **kwargs)
        return result if bound.then is None else bound.then(result)

    ours = [[copied(one) for one in turn.call.tensors] for turn in turns]
    arguments = [_arguments(turn.bound.on(given)) for turn, given in zip(turns, ours, strict=True)]
    answer = _asked(driver, function, arguments)
    if answer.unsupported:
        return {"status": Status.UNSUPPORTED, "reason": answer.unsupported}
    if answer.outputs is None or len(answer.outputs) != len(turns):
        trace = "" if answer.error is None else tail("".join(traceback.format_exception(answer.error)))
        return {"status": Status.ERROR, "reason": answer.error_text, "stderr_tail": trace}
    fields: Fields = {}
    for number, (turn, given, result) in enumerate(zip(turns, ours, answer.outputs, strict=True), 1):
        try:
            fields = _seen(turn, given, tensors_of(result), kind)
        except Exception as error:  # noqa: BLE001  # such as a dtype that NumPy has no arrays of
            text = f"the comparison raised {type(error).__name__}: {error}"
            fields = {"status": Status.ERROR, "reason": text}
        if fields["status"] is not Status.PASSED:
            return {**fields, "reason": f"call {number} of {len(turns)}: {fields['reason']}"}
    if answer.fallback:
        return {**fields, "status": Status.FALLBACK, "reason": answer.fallback_text}
    return fields


def _arguments(bound: Bound) -> tuple[Sequence[Any], Mapping[str, Any]]:
    return bound.args, bound.kwargs


def _asked(driver: CallDriver, function: Any, arguments: Sequence[tuple[Any, Any]]) -> Answer:
    try:
        return driver.answer_in_turn(function, arguments)
    except BaseException as error:  # whatever a backend raises is its answer
        if is_ctrl_c(error):
            raise
        return Answer(error=error)


def _seen(turn: Case, given: Sequence[Tensor], found: Sequence[Tensor], kind: str) -> Fields:
    """Compare one call with eager's: values and dtypes, then inputs, strides and shared memory."""
    loose = kind == "uninitialised" or (kind == "random" and is_random(turn))
    fields = (by_form if loose else by_value)(turn, found)
    if fields["status"] is not Status.PASSED or turn.formed:
        return fields  # a form's results are the suite's own
    inputs = [copied(one) for one in turn.call.tensors]
    args, kwargs = _arguments(turn.bound.on(inputs))
    result = turn.bound.target(*args, **kwargs)
    expected = tensors_of(result if turn.bound.then is None else turn.bound.then(result))
    if not loose:
        for place, (one, other) in enumerate(zip(given, inputs, strict=True)):
            if not one.is_meta and not compare(array_of(dense(one)), array_of(dense(other))).passed:
                return mismatch(f"input{place} has other values after the call than after eager's")
    difference = unlike([*given, *found], [*inputs, *expected], len(inputs))
    return mismatch(difference) if difference else fields


def unlike(ours: Sequence[Tensor], eager: Sequence[Tensor], inputs: int) -> str:
    """Return the first difference in strides or shared memory; empty if there is none.

    The first ``inputs`` tensors of ``ours`` and ``eager`` are the inputs, the others the results.
    """
    names = [f"input{n}" for n in range(inputs)] + [f"output{n}" for n in range(len(ours) - inputs)]
    for name, one, other, first, wanted in zip(
        names, ours, eager, sharing(ours), sharing(eager), strict=True
    ):
        if not (_in_memory(one) and _in_memory(other)):
            continue
        if _strides(one) != _strides(other):
            return f"{name}: strides {one.stride()}, expected {other.stride()}"
        if first != wanted:
            return f"{name} shares memory with {_of(names, first)}, expected {_of(names, wanted)}"
        if wanted is not None and one.numel() and one.storage_offset() != other.storage_offset():
            return f"{name}: storage offset {one.storage_offset()}, expected {other.storage_offset()}"
    return ""


def sharing(tensors: Sequence[Tensor]) -> list[int | None]:
    """Return, for each tensor, the index of the first earlier tensor with the same memory, or None."""
    first: dict[int, int] = {}
    found: list[int | None] = []
    for place, one in enumerate(tensors):
        memory = one.untyped_storage().data_ptr() if _in_memory(one) else 0
        before = first.setdefault(memory, place) if memory else place
        found.append(before if before != place else None)
    return found


def _in_memory(tensor: Tensor) -> bool:
    return tensor.layout is torch.strided and not tensor.is_meta


def _strides(tensor: Tensor) -> list[int]:
    """Return the strides of dimensions longer than 1; none if the tensor is empty. Others have no effect."""
    if not tensor.numel():
        return []
    return [stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size > 1]


def _of(names: Sequence[str], place: int | None) -> str:
    return "nothing" if place is None else names[place]
