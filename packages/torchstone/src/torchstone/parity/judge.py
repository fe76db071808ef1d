"""Decide whether a tensor counts as equal to eager PyTorch's.

By the tolerance of its dtype, or by what rounding alone does to eager's own result: runs of eager with
other roundings (:mod:`.roundings`) show it. The value is compared with whatever is nearest to it: the
result in float64, eager's, or that of one of those runs. What they differ by around there is what it may
be off by. Nearest, because a rounding at a ReLU or a maximum can decide which of several results is
computed: then float64's may be another one than eager's, and far from it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy
import torch

from optest.core.comparator import compare
from optest.core.comparison import Comparison
from optest.core.tolerance import Tolerance, default_tolerance

from .steps import scale_of
from .verification import DType

Array = numpy.ndarray[Any, Any]

RUNS = 8
"""The number of eager runs with other roundings."""
_AROUND = 2 / 3
"""The share of eager's runs that measure: where a rounding decides, the others decided otherwise."""
_LARGEST_SCALE = 2.0**100
"""Beyond it, powers of two leave the range of float32."""
SIXTEEN_BITS = ("bfloat16", "float16")


@dataclass(frozen=True)
class Judge:
    """Compares tensors of a dtype, with the user's tolerances if there are any."""

    dtype: DType
    rtol: float | None
    atol: float | None

    @property
    def is_fixed(self) -> bool:
        """Whether only the user's tolerance decides, and rounding is no excuse."""
        return self.rtol is not None or self.atol is not None

    def verdicts(
        self,
        actual: Array,
        expected: Array,
        truth: Array | None = None,
        others: Callable[[], Sequence[Array]] = tuple,
    ) -> Iterator[tuple[str, Comparison]]:
        """What is compared of ``actual`` (empty: its elements), and the verdict on it.

        ``truth`` is the result in float64; ``others`` gives eager's with other roundings and is called only
        where the tolerance does not decide. Then the size is compared too: ``actual`` projected on what is
        nearest to it. It shows an error of all elements that is smaller than the rounding error of each.
        """
        everywhere = self.dtype in SIXTEEN_BITS
        plain = compare(actual, expected, self._tolerance(expected))
        decided = (plain.passed and not everywhere) or not plain.same_form or self.is_fixed
        if decided or expected.dtype.kind in "biu" or truth is None or truth.shape != expected.shape:
            yield "", plain
            return
        runs = [expected, *(one for one in others() if one.shape == expected.shape)]
        nearest = min([truth, *runs], key=lambda one: _distance(one, actual))
        control, *more = _measures(nearest, truth, runs)
        yield (
            "",
            compare(
                actual,
                expected,
                reference=_wide(nearest),
                control=control,
                others=more,
                mode="accuracy" if everywhere else "allclose",
            ),
        )
        if more and expected.size > 1 and _is_usable(nearest):
            yield (
                "size of ",
                compare(
                    _size(actual, nearest),
                    _size(expected, nearest),
                    reference=numpy.float64(1),
                    control=_size(control, nearest),
                    others=[_size(one, nearest) for one in more],
                ),
            )

    def scale(self, expected: torch.Tensor, *, in_training: bool) -> float | int:
        """Makes the absolute tolerance relative to the largest element, where that is below 1.

        The user's own tolerance is meant so for training steps alone, and there for all sizes.
        """
        if self.is_fixed:
            return scale_of(expected) if in_training else 1
        if self.dtype in SIXTEEN_BITS:
            return 1  # no absolute tolerance decides
        return min(max(1, scale_of(expected)), _LARGEST_SCALE)

    def _tolerance(self, expected: Array) -> Tolerance | None:
        if not self.is_fixed or expected.dtype.kind in "biu":
            return None
        default = default_tolerance(expected.dtype)
        return Tolerance(
            default.rtol if self.rtol is None else self.rtol, default.atol if self.atol is None else self.atol
        )


@numpy.errstate(all="ignore")
def _measures(nearest: Array, truth: Array, runs: Sequence[Array]) -> list[Array]:
    """What differs from ``nearest`` as runs of eager do from one of them: those that are around it.

    That one is ``nearest``, or the run that is nearest to ``truth``.
    """
    if len(runs) == 1:
        return list(runs)
    home = min(runs, key=lambda one: _distance(one, truth)) if nearest is truth else nearest
    around = sorted(runs, key=lambda one: _distance(one, home))[1 : 1 + int(_AROUND * len(runs))]
    return [_wide(truth) + (_wide(one) - _wide(home)) for one in around] if nearest is truth else around


def _wide(values: Array) -> Array:
    return values.astype(numpy.complex128 if values.dtype.kind == "c" else numpy.float64, copy=False)


@numpy.errstate(all="ignore")
def _distance(one: Array, other: Array) -> float:
    """The Euclidean norm of the difference; where both are infinite or NaN they do not differ."""
    difference = numpy.subtract(one, other, dtype=numpy.result_type(one, other, numpy.float32))
    found = float(numpy.linalg.norm(difference))
    return float(numpy.linalg.norm(numpy.nan_to_num(difference, nan=0.0))) if math.isnan(found) else found


def _is_usable(values: Array) -> bool:
    largest = numpy.abs(_wide(values)).max()
    return bool(numpy.isfinite(largest) and largest > 0)


def _size(values: Array, of: Array) -> Array:
    """⟨values, of⟩ / ⟨of, of⟩, in float32."""
    of = _wide(of)
    return numpy.asarray((numpy.vdot(of, _wide(values)) / numpy.vdot(of, of)).real, numpy.float32)
