"""Every overload in the registry, in every dtype it declares, against eager.

``make test`` runs one program per overload with one sample in every dtype, another one in each,
and one for each gradient; ``make conformance`` runs all samples, one program per overload and dtype.
"""

from __future__ import annotations

import pytest
from torch._ops import OpOverload

from operator_samples import Sample, load_samples
from torchstone import lowering
from torchstone.dtypes import COMPLEX128, EVERY, FLOAT64, DType
from torchstone.lowering import Lowering
from torchstone.lowering.registry import EXPANSIONS
from torchstone.parity.operators import Outcome, check_backward, check_forward

REGISTRY = lowering.load()
SAMPLES = load_samples()
_REFUSALS = (RuntimeError, NotImplementedError, TypeError, ValueError)


def forward_cases() -> list[object]:
    return [
        pytest.param(entry, dtype, id=f"{entry.name.removeprefix('aten.')}-{dtype}")
        for entry in REGISTRY
        for dtype in sorted(entry.dtypes, key=str)
    ]


def backward_cases() -> list[object]:
    return [
        pytest.param(entry, dtype, id=f"{entry.name.removeprefix('aten.')}-{dtype}")
        for entry in REGISTRY
        if entry.overload in SAMPLES and SAMPLES[entry.overload].gradient
        for dtype in (FLOAT64, COMPLEX128)
        if dtype in entry.dtypes
    ]


def taken_by_eager(overload: OpOverload, samples: list[Sample], limit: int | None = None) -> list[Sample]:
    """The samples that eager PyTorch accepts, the first ``limit`` of them."""
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
    """Every dtype; the widest of each kind where PyTorch expands the operator to others that have all."""
    dtypes = sorted(entry.dtypes, key=lambda dtype: (dtype.bits, str(dtype)))
    return list({dtype.kind: dtype for dtype in dtypes}.values()) if entry.special & EXPANSIONS else dtypes


def report(outcomes: list[Outcome]) -> str:
    return "\n\n".join(outcome.describe() for outcome in outcomes if not outcome.passed)


def one_sample_each(entry: Lowering) -> list[Sample]:
    """A sample in every quick dtype, the next one in the next, so that edge cases come up too."""
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


@pytest.mark.parametrize("entry", list(REGISTRY), ids=lambda entry: entry.name)
def test_declared_dtypes_cover_eager(entry: Lowering) -> None:
    """What PyTorch's CPU kernels take is declared, or its absence has a reason."""
    if entry.overload not in SAMPLES:
        pytest.fail("no samples")
    silent = []
    for dtype in sorted(EVERY - entry.dtypes - set(entry.gaps), key=str):
        try:
            given = SAMPLES[entry.overload].make(dtype.torch)
        except Exception:  # noqa: BLE001 - samples may be impossible in a dtype that nobody declares
            continue
        # Tensors with at most one element take shortcuts in eager that say nothing of its kernels.
        telling = [sample for sample in given if all(tensor.numel() > 1 for tensor in sample.tensors())]
        if taken_by_eager(entry.overload, telling):
            silent.append(dtype)
    assert not silent, f"PyTorch takes {silent}: declare them or give the reason in gaps="


@pytest.mark.parametrize("entry", list(REGISTRY), ids=lambda entry: entry.name)
def test_forward(entry: Lowering) -> None:
    run_forward(entry, one_sample_each(entry))


@pytest.mark.parametrize(("entry", "dtype"), backward_cases())
def test_backward(entry: Lowering, dtype: DType) -> None:
    run_backward(entry, dtype, every=False)


@pytest.mark.conformance
@pytest.mark.parametrize(("entry", "dtype"), forward_cases())
def test_forward_all(entry: Lowering, dtype: DType) -> None:
    run_forward(entry, taken_by_eager(entry.overload, SAMPLES[entry.overload].make(dtype.torch)))


@pytest.mark.conformance
@pytest.mark.parametrize(("entry", "dtype"), backward_cases())
def test_backward_all(entry: Lowering, dtype: DType) -> None:
    run_backward(entry, dtype, every=True)
