"""The same programs on the reference interpreter and on XLA: every operator family, and what it cannot run.

``make test`` takes a few overloads of each family, each in one dtype; ``make
conformance`` every overload in every dtype. All samples share one child process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache

import pytest
from torch._ops import OpOverload

from operator_samples import SAMPLES, Sample, load_samples
from torchstone import lowering
from torchstone.dtypes import (
    BFLOAT16,
    COMPLEX64,
    COMPLEX128,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    INT32,
    INT64,
    DType,
)
from torchstone.errors import EngineError
from torchstone.lowering import Lowering
from torchstone.parity.operators import check_engine

REGISTRY = lowering.load()
load_samples()
FAMILIES = sorted({entry.family for entry in REGISTRY})
IN_TESTS = 4
"""How many overloads of each family `make test` runs."""
PREFERRED = (FLOAT32, INT64, COMPLEX64, FLOAT64, BFLOAT16, INT32)
"""The dtypes that these overloads use in turn."""
_REFUSALS = (RuntimeError, NotImplementedError, TypeError, ValueError)

INEXACT = frozenset({FLOAT32, FLOAT64, COMPLEX64, COMPLEX128})
SINGLE = frozenset({FLOAT32, COMPLEX64})
UNSUPPORTED: Mapping[str, tuple[str, frozenset[DType]]] = {
    "aten._fft_c2c.default": ("stablehlo.fft of 32-bit values", SINGLE),
    "aten._fft_c2r.default": ("stablehlo.fft of 32-bit values", SINGLE),
    "aten._fft_r2c.default": ("stablehlo.fft of 32-bit values", SINGLE),
    "aten._linalg_solve_ex.default": ("stablehlo.triangular_solve of a batch", INEXACT),
    "aten.cholesky.default": ("stablehlo.cholesky", INEXACT),
    "aten.cholesky_inverse.default": ("stablehlo.triangular_solve of a batch", INEXACT),
    "aten.cholesky_solve.default": ("stablehlo.triangular_solve of a batch", INEXACT),
    "aten.linalg_cholesky_ex.default": ("stablehlo.cholesky", INEXACT),
    "aten.linalg_inv_ex.default": ("stablehlo.triangular_solve of a batch", INEXACT),
    "aten.linalg_lstsq.default": ("stablehlo.triangular_solve of a batch", INEXACT),
    "aten.linalg_lu_solve.default": ("stablehlo.triangular_solve of a batch", INEXACT),
    "aten.linalg_solve_triangular.default": ("stablehlo.triangular_solve of a batch", INEXACT),
    "aten.triangular_solve.default": ("stablehlo.triangular_solve of a batch", INEXACT),
}
"""By overload: an operation that its samples need and the interpreter lacks, and the dtypes affected."""

HALF = frozenset({FLOAT16, BFLOAT16})
ROUNDED: Mapping[str, frozenset[DType]] = {
    "aten._convolution.default": HALF,
    "aten.conv_tbc.default": frozenset({FLOAT16}),
    "aten.convolution.default": HALF,
    "aten.convolution_backward.default": HALF,
}
"""Convolutions whose sums the interpreter rounds to 16 bits after every addition, but XLA only at the end."""


def refused(entry: Lowering, dtype: DType) -> str | None:
    """Return the operation that the interpreter lacks for this overload in this dtype, or None."""
    operation, where = UNSUPPORTED.get(entry.name, ("", frozenset()))
    return operation if dtype in where else None


def comparable(entry: Lowering, dtype: DType) -> bool:
    return refused(entry, dtype) is None and dtype not in ROUNDED.get(entry.name, ())


def first_sample(overload: OpOverload, dtype: DType) -> Sample | None:
    """Return the first sample that eager PyTorch accepts and that has no empty tensor."""
    for sample in SAMPLES[overload].make(dtype.torch):
        if any(tensor.numel() == 0 for tensor in sample.tensors()):
            continue
        try:
            overload(*sample.args, **sample.kwargs)
        except _REFUSALS:
            continue
        return sample
    return None


@cache
def selected(family: str) -> list[tuple[OpOverload, DType, Sample]]:
    """Return overloads spread evenly over a family's names; neighbors have different dtypes."""
    entries = [entry for entry in REGISTRY if entry.family == family]
    step = max(len(entries) / IN_TESTS, 1)
    found = []
    for turn in range(min(IN_TESTS, len(entries))):
        entry = entries[int(turn * step)]
        start = turn % len(PREFERRED)
        for dtype in (*PREFERRED[start:], *PREFERRED[:start], *sorted(entry.dtypes, key=str)):
            if dtype in entry.dtypes and comparable(entry, dtype):
                sample = first_sample(entry.overload, dtype)
                if sample is not None:
                    found.append((entry.overload, dtype, sample))
                    break
    return found


def check(calls: Iterable[tuple[OpOverload, DType, Sample]]) -> None:
    """Both engines run one program of all calls and agree."""
    calls = list(calls)
    outcomes = check_engine([(overload, sample) for overload, _, sample in calls], "reference")
    differing = [
        f"{overload} in {dtype}: {outcome.describe()}"
        for (overload, dtype, _), outcome in zip(calls, outcomes, strict=True)
        if not outcome.passed
    ]
    assert not differing, "\n\n".join(differing)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("family", FAMILIES)
def test_family(family: str) -> None:
    if not selected(family):
        assert all(entry.name in UNSUPPORTED for entry in REGISTRY if entry.family == family)
        return
    check(selected(family))


@pytest.mark.parametrize("name", sorted(UNSUPPORTED))
def test_unsupported(name: str) -> None:
    """Fail if the interpreter now supports the operation, or if the lowering no longer uses it."""
    operation, where = UNSUPPORTED[name]
    entry = next(entry for entry in REGISTRY if entry.name == name)
    dtype = min(where & entry.dtypes, key=str)
    sample = first_sample(entry.overload, dtype)
    assert sample is not None
    with pytest.raises(EngineError, match=f"cannot run 1 operation.*\n  {operation}: "):
        check_engine([(entry.overload, sample)], "reference")


@pytest.mark.parametrize("name", sorted(ROUNDED))
def test_rounded(name: str) -> None:
    """Fail if the two engines agree."""
    entry = next(entry for entry in REGISTRY if entry.name == name)
    for dtype in sorted(ROUNDED[name], key=str):
        sample = first_sample(entry.overload, dtype)
        assert sample is not None
        (outcome,) = check_engine([(entry.overload, sample)], "reference")
        assert outcome.comparisons[0].same_form
        assert not outcome.passed, f"{name} agrees in {dtype}: take it off the list"


@pytest.mark.conformance
@pytest.mark.parametrize("entry", list(REGISTRY), ids=lambda entry: entry.name)
def test_every_dtype(entry: Lowering) -> None:
    calls = []
    for dtype in sorted(entry.dtypes, key=str):
        sample = first_sample(entry.overload, dtype)
        if sample is None:
            continue
        if comparable(entry, dtype):
            calls.append((entry.overload, dtype, sample))
        elif refused(entry, dtype):
            with pytest.raises(EngineError, match=f"\n  {refused(entry, dtype)}: "):
                check_engine([(entry.overload, sample)], "reference")
    if calls:
        check(calls)
