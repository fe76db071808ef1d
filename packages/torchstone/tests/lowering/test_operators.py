"""Every overload in the registry, in every dtype it declares, against eager.

``make test`` takes half of the overloads. It runs one sample in each of some of their dtypes, another sample
in each dtype, and the gradients of a quarter of them in float64 and partly in complex128.
``make conformance`` takes the other overloads, and runs all samples, in one program per overload and dtype.
"""

from __future__ import annotations

import contextlib
from functools import partial

import pytest
import torch
from stratified import stratified
from torch._ops import OpOverload
from torch.utils import _pytree as pytree

from operator_samples import Sample, load_samples
from torchstone import lowering
from torchstone.dtypes import COMPLEX128, EVERY, FLOAT64, SUB_BYTE, DType
from torchstone.lowering import Lowering
from torchstone.lowering.registry import EXPANSIONS
from torchstone.parity.operators import Outcome, check_backward, check_forward

REGISTRY = lowering.load()
SAMPLES = load_samples()
_REFUSALS = (RuntimeError, NotImplementedError, TypeError, ValueError)


def forward_cases() -> list[tuple[Lowering, DType]]:
    return [(entry, dtype) for entry in REGISTRY for dtype in sorted(entry.dtypes, key=str)]


def backward_cases() -> list[tuple[Lowering, DType]]:
    return [
        (entry, dtype)
        for entry in REGISTRY
        if entry.overload in SAMPLES and SAMPLES[entry.overload].gradient
        for dtype in (FLOAT64, COMPLEX128)
        if dtype in entry.dtypes
    ]


def identifiers(cases: list[tuple[Lowering, DType]]) -> list[str]:
    return [f"{entry.name.removeprefix('aten.')}-{dtype}" for entry, dtype in cases]


def taken_by_eager(overload: OpOverload, samples: list[Sample], limit: int | None = None) -> list[Sample]:
    """Return the samples that eager PyTorch accepts, at most ``limit`` of them."""
    good: list[Sample] = []
    for sample in samples:
        if len(good) == limit:
            break
        try:
            overload(*sample.args, **sample.kwargs)
        except _REFUSALS:
            continue
        good.append(sample)
    return good


def quick_dtypes(entry: Lowering) -> list[DType]:
    """Return the widest dtype of each kind, and some others if the operator has kernels of its own."""
    dtypes = sorted(entry.dtypes, key=lambda dtype: (dtype.bits, str(dtype)))
    widest = {dtype.kind: dtype for dtype in dtypes}
    others = [dtype for dtype in dtypes if dtype not in widest.values()]
    if not others or entry.special & EXPANSIONS:
        return list(widest.values())
    part = stratified(others, 6, name=lambda dtype: f"{entry.name}-{dtype}", stratum=lambda _: None)
    return [*widest.values(), *part]


def quick_backward_cases() -> list[tuple[Lowering, DType]]:
    """Return the cases in float64, and a third of those in complex128."""
    return stratified(
        backward_cases(),
        3,
        name=lambda case: f"{case[0].name}-{case[1]}",
        stratum=lambda case: case[0].name if case[1] is FLOAT64 else "complex128",
    )


def report(outcomes: list[Outcome]) -> str:
    return "\n\n".join(outcome.describe() for outcome in outcomes if not outcome.passed)


def one_sample_each(entry: Lowering) -> list[Sample]:
    """Return one sample in every quick dtype, a different one in each, so that edge cases are covered too."""
    taken = []
    for place, dtype in enumerate(quick_dtypes(entry)):
        samples = SAMPLES[entry.overload].make(dtype.torch)
        first = place % max(len(samples), 1)
        taken += taken_by_eager(entry.overload, samples[first:] + samples[:first], limit=1)
    return taken


def run_forward(entry: Lowering, taken: list[Sample]) -> None:
    if not taken:
        pytest.skip("PyTorch's CPU kernels take none of the samples: nothing to compare with")
    outcomes = check_forward(entry.overload, taken)
    if SAMPLES[entry.overload].random:
        assert all(found.same_form for outcome in outcomes for found in outcome.comparisons)
    else:
        assert not report(outcomes), report(outcomes)


def run_backward(entry: Lowering, dtype: DType, *, every: bool) -> None:
    """Check the gradients of all samples in one program, or of the first one that has any."""
    taken = taken_by_eager(entry.overload, SAMPLES[entry.overload].make(dtype.torch))
    for samples in [taken] if every else [[sample] for sample in taken]:
        if outcomes := check_backward(entry.overload, samples):
            assert not report(outcomes), report(outcomes)
            return
    pytest.skip(f"nothing to differentiate in {dtype}")


def test_every_overload_has_samples() -> None:
    missing = [entry.name for entry in REGISTRY if entry.overload not in SAMPLES]
    assert not missing


def test_samples_belong_to_lowerings() -> None:
    assert not [str(overload) for overload in SAMPLES if overload not in REGISTRY]


def test_samples_are_in_the_module_of_the_familys_name() -> None:
    elsewhere = [
        entry.name
        for entry in REGISTRY
        if SAMPLES[entry.overload].function.__module__ != f"operator_samples.{entry.family}"
    ]
    assert not elsewhere


def samples_beyond(entry: Lowering, dtype: DType) -> list[Sample]:
    """Return samples in a dtype that the lowering does not declare.

    A sample function may fail in such a dtype, so samples of declared dtypes are converted to it as well.
    """
    samples, found = SAMPLES[entry.overload], []
    made = iter(samples.function(samples.maker(dtype.torch)))
    with contextlib.suppress(StopIteration, *_REFUSALS):
        while True:
            found.append(next(made))
    if entry.overload.namespace == "torchstone":
        return found  # an operator of Torchstone's own: PyTorch has no kernel to ask
    for declared in {one.kind: one for one in sorted(entry.dtypes, key=str)}.values():
        for sample in samples.make(declared.torch):
            with contextlib.suppress(*_REFUSALS):
                found.append(sample.map(partial(converted, of=declared.torch, to=dtype.torch)))
    return found


def converted(tensor: torch.Tensor, of: torch.dtype, to: torch.dtype) -> torch.Tensor:
    """Convert ``tensor`` from dtype ``of`` to ``to``, dropping imaginary parts if ``to`` is not complex."""
    if tensor.dtype is not of:
        return tensor
    return (tensor.real if of.is_complex and not to.is_complex else tensor).to(to)


def test_pytorch_makes_no_tensors_of_four_bits() -> None:
    """PyTorch's kernels cannot be tried in these dtypes. It can convert to every other dtype."""
    for dtype in EVERY - SUB_BYTE:
        assert torch.ones(2).to(dtype.torch).dtype is dtype.torch
    for dtype in SUB_BYTE:
        with pytest.raises(NotImplementedError, match="copy_"):
            torch.ones(2).to(dtype.torch)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("entry", list(REGISTRY), ids=lambda entry: entry.name)
def test_declared_dtypes_cover_eager(entry: Lowering) -> None:
    """Every dtype that PyTorch's CPU kernels accept is declared, or its absence has a reason."""
    silent = []
    for dtype in sorted(EVERY - SUB_BYTE - entry.dtypes - set(entry.gaps), key=str):
        given = samples_beyond(entry, dtype)
        assert given or entry.overload.namespace == "torchstone", f"no sample in {dtype}"
        # Eager takes shortcuts for tensors with at most one element, so these say nothing about its kernels.
        telling = [
            sample
            for sample in given
            if all(tensor.numel() > 1 for tensor in sample.tensors()) and mentions(sample, dtype)
        ]
        if taken_by_eager(entry.overload, telling, limit=1):
            silent.append(dtype)
    assert not silent, f"PyTorch takes {silent}: declare them or give the reason in gaps="


def mentions(sample: Sample, dtype: DType) -> bool:
    """Whether the first tensor has the dtype or, without tensors, an argument is the dtype."""
    if tensors := sample.tensors():
        return tensors[0].dtype is dtype.torch
    return any(leaf is dtype.torch for leaf in pytree.tree_leaves((sample.args, sample.kwargs)))


@pytest.mark.sampled(24)
@pytest.mark.parametrize("entry", list(REGISTRY), ids=lambda entry: entry.name)
def test_forward(entry: Lowering) -> None:
    run_forward(entry, one_sample_each(entry))


@pytest.mark.sampled(24)
@pytest.mark.parametrize(("entry", "dtype"), quick_backward_cases(), ids=identifiers(quick_backward_cases()))
def test_backward(entry: Lowering, dtype: DType) -> None:
    run_backward(entry, dtype, every=False)


@pytest.mark.conformance
@pytest.mark.parametrize(("entry", "dtype"), forward_cases(), ids=identifiers(forward_cases()))
def test_forward_all(entry: Lowering, dtype: DType) -> None:
    run_forward(entry, taken_by_eager(entry.overload, SAMPLES[entry.overload].make(dtype.torch)))


@pytest.mark.conformance
@pytest.mark.parametrize(("entry", "dtype"), backward_cases(), ids=identifiers(backward_cases()))
def test_backward_all(entry: Lowering, dtype: DType) -> None:
    run_backward(entry, dtype, every=True)
