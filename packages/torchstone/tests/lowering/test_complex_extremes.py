"""Complex operators on every pair of finite, infinite and NaN parts, against eager.

Operators that differ are a list with reasons; an entry that agrees fails. The
samples of these operators leave such values out, because their comparison with
float64 and their gradients have no meaning there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
import torch
from torch._ops import OpOverload

from torchstone import lowering
from torchstone.dtypes import COMPLEX64
from torchstone.lowering import Lowering
from torchstone.parity.operators import Sample, check_forward

FAMILIES = {"activation", "arithmetic", "comparison", "complex_numbers", "elementary", "trigonometry"}
PARTS = (0.0, -0.0, 1.5, -2.5, float("inf"), float("-inf"), float("nan"))

_SCALED = "eager multiplies by alpha = 1+0j first, whose zero makes NaN of the part beside an infinite one"
_DIVIDED = "eager divides infinity by infinity; the quotient here is the limit, 0, as in C99"
DIFFERS: Mapping[str, str] = {
    "aten.add.Tensor": _SCALED,
    "aten.div.Tensor": _DIVIDED,
    "aten.expm1.default": "eager gives NaN beside an infinite real part where the imaginary part is zero",
    "aten.pow.Tensor_Tensor": "eager multiplies by a logarithm that may be infinite: NaN, also for 0 ** 0",
    "aten.reciprocal.default": _DIVIDED,
    "aten.rsqrt.default": _DIVIDED,
    "aten.rsub.Tensor": _SCALED,
    "aten.sgn.default": "eager's vectorised and scalar kernels differ; the values here are the scalar one's",
    "aten.sigmoid.default": "eager is 1 / (1 + exp(-x)) step by step, with an infinite divisor at both ends",
    "aten.sub.Tensor": _SCALED,
}
"""Overload → why it differs from eager on infinities, NaN or zeros."""


def operands(overload: OpOverload) -> int | None:
    """Return 1 or 2 if the operator requires exactly that many tensors and nothing else; otherwise None."""
    needed = [argument for argument in overload._schema.arguments if not argument.has_default_value()]
    plain = all(str(argument.type) == "Tensor" and not argument.kwarg_only for argument in needed)
    return len(needed) if plain and len(needed) in (1, 2) else None


ENTRIES = [
    entry
    for entry in lowering.load()
    if entry.family in FAMILIES and COMPLEX64 in entry.dtypes and operands(entry.overload)
]


def parts(outputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Separate real and imaginary parts: with an infinite part, the other one would have no tolerance."""
    resolved = [output.resolve_conj().resolve_neg() for output in outputs]
    return [torch.view_as_real(output) if output.is_complex() else output for output in resolved]


def extremes(count: int, dtype: torch.dtype) -> Sample:
    """Return every extreme number as the operand, or every pair of them as the operands."""
    numbers = torch.tensor([complex(a, b) for a in PARTS for b in PARTS], dtype=dtype)
    if count == 1:
        return Sample((numbers,), canonical=parts)
    left, right = torch.broadcast_tensors(numbers[:, None], numbers)
    return Sample((left.contiguous(), right.contiguous()), canonical=parts)


def check(entry: Lowering, dtype: torch.dtype) -> None:
    (outcome,) = check_forward(entry.overload, [extremes(operands(entry.overload) or 0, dtype)])
    assert all(comparison.same_form for comparison in outcome.comparisons)
    if entry.name in DIFFERS:
        assert not outcome.passed, f"{entry.name} agrees: take it off the list"
    else:
        assert outcome.passed, outcome.describe()


def test_the_list_names_operators_of_these_families() -> None:
    assert set(DIFFERS) <= {entry.name for entry in ENTRIES}
    assert len(ENTRIES) > 40


@pytest.mark.sampled(4)
@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_complex64(entry: Lowering) -> None:
    check(entry, torch.complex64)


@pytest.mark.conformance
@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_complex128(entry: Lowering) -> None:
    check(entry, torch.complex128)
