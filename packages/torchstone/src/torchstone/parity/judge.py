"""Decide whether a tensor counts as equal to eager PyTorch's.

It does if it is within the tolerance of its dtype, or if rounding explains the difference. Runs of eager
with other roundings (:mod:`.roundings`) show how much rounding alone changes eager's result. The tensor is
compared with the result nearest to it: float64's, eager's, or that of one of those runs. Its error may be as
large as the differences among the results around that one. If that does not explain the difference, runs
without oneDNN decide, whose kernels add in another order.

The nearest result is used because a rounding at a ReLU or a maximum can decide which of several results is
computed. Float64's result may then differ from eager's by far more than rounding errors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy
import torch

from optest.core.comparator import compare
from optest.core.comparison import Comparison
from optest.core.tolerance import Tolerance, default_tolerance

from ..compiler.graphs import to_numpy
from .steps import scale_of
from .verification import DType

Array = numpy.ndarray[Any, Any]

_AROUND = 2 / 3
"""The share of eager's runs, the nearest ones, that measure what rounding does.

Where a rounding decides which result is computed, the other runs may have another result.
"""
_LARGEST_SCALE = 2.0**100
"""The largest scale: larger powers of two would leave the range of float32."""
SIXTEEN_BITS = ("bfloat16", "float16")
T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True)
class Others(Generic[T]):
    """Results of eager with other roundings: by its usual kernels, and by those that it has without oneDNN.

    Each kind lies around one result: an order of additions has errors of its own, which other roundings vary.
    """

    usual: Callable[[], Sequence[T]]
    without_onednn: Callable[[], Sequence[T]]

    def each(self, change: Callable[[Sequence[T]], Sequence[U]]) -> Others[U]:
        """Return the same results after ``change``."""
        return Others(lambda: change(self.usual()), lambda: change(self.without_onednn()))


@dataclass(frozen=True)
class Judge:
    """A comparison of tensors of a dtype, with the user's tolerances if there are any."""

    dtype: DType
    rtol: float | None
    atol: float | None

    @property
    def is_fixed(self) -> bool:
        """Whether only the user's tolerance decides, whatever rounding explains."""
        return self.rtol is not None or self.atol is not None

    def verdicts(
        self,
        actual: Array,
        expected: Array,
        truth: Array | None = None,
        others: Callable[[], Sequence[Array]] = tuple,
        *,
        apart: bool = False,
        around_eager: bool = False,
    ) -> Iterator[tuple[str, Comparison]]:
        """Yield verdicts on ``actual``, each with a prefix for its name; the elements have an empty prefix.

        ``truth`` is the result in float64. ``others`` returns eager's results with other roundings; it is
        called only if the tolerance does not decide. Then the size is compared too, that is, the projection
        of ``actual`` on the result nearest to it. The size shows an error that all elements share, even if
        it is smaller than the rounding error of each element. ``apart`` says that the other results do not
        lie around ``expected``, so that only they measure what rounding does. ``around_eager`` compares with
        ``expected`` in place of the nearest result.
        """
        everywhere = self.dtype in SIXTEEN_BITS
        plain = compare(actual, expected, self._tolerance(expected))
        decided = (plain.passed and not everywhere) or not plain.same_form or self.is_fixed
        if decided or expected.dtype.kind in "biu" or truth is None or truth.shape != expected.shape:
            yield "", plain
            return
        runs = [one for one in others() if one.shape == expected.shape]
        if not apart or not runs:
            runs.insert(0, expected)
        nearest = expected if around_eager else min([truth, *runs], key=lambda one: _distance(one, actual))
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

    def decide(
        self,
        actual: Array,
        expected: torch.Tensor,
        truth: torch.Tensor | None,
        others: Others[torch.Tensor],
        *,
        in_training: bool,
    ) -> tuple[str, Comparison]:
        """Return the first failed verdict on ``actual``, or else the one on its elements, with its prefix.

        If the usual kernels do not explain a difference, the others may: which result is computed can
        depend on a decision, such as that of a ReLU, that the errors of one kind of kernel never change.
        """
        found = self._verdict(actual, expected, truth, others.usual, in_training=in_training)
        if found[1].passed:
            return found
        return self._verdict(
            actual, expected, truth, others.without_onednn, in_training=in_training, apart=True
        )

    def is_other_branch(
        self,
        actual: Array,
        expected: torch.Tensor,
        truth: torch.Tensor | None,
        others: Others[torch.Tensor],
        *,
        in_training: bool,
    ) -> bool:
        """Whether roundings around eager's own result do not explain ``actual``.

        If :meth:`decide` passes it all the same, a rounding decides between branches: ``actual`` belongs to
        another result, which float64 or other roundings give.
        """
        around = self._verdict(
            actual, expected, truth, others.usual, in_training=in_training, around_eager=True
        )
        return not around[1].passed

    def _verdict(
        self,
        actual: Array,
        expected: torch.Tensor,
        truth: torch.Tensor | None,
        runs: Callable[[], Sequence[torch.Tensor]],
        *,
        in_training: bool,
        apart: bool = False,
        around_eager: bool = False,
    ) -> tuple[str, Comparison]:
        """Return the first failed one of :meth:`verdicts`, or else the one on the elements."""
        scale = self.scale(expected, in_training=in_training)

        def scaled(value: torch.Tensor) -> Array:
            return to_numpy(value if scale == 1 else value * scale)

        verdicts = list(
            self.verdicts(
                actual if scale == 1 else numpy.asarray(actual * scale, actual.dtype),
                scaled(expected),
                None if truth is None else scaled(truth),
                lambda: [scaled(one) for one in runs()],
                apart=apart,
                around_eager=around_eager,
            )
        )
        return next((one for one in verdicts if not one[1].passed), verdicts[0])

    def scale(self, expected: torch.Tensor, *, in_training: bool) -> float | int:
        """Return a factor that makes the absolute tolerance relative to the largest element, if below 1.

        With the user's own tolerance this applies only to training steps, and there to elements of any size.
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
    """Return arrays that differ from ``nearest`` as much as runs of eager differ from each other.

    If ``nearest`` is a run, they are the runs around it. If it is ``truth``, they are the runs around the run
    nearest to ``truth``, moved so that this run lies at ``truth``.
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
    """Return the Euclidean norm of the difference; a difference that is NaN counts as 0."""
    difference = numpy.subtract(one, other, dtype=numpy.result_type(one, other, numpy.float32))
    found = float(numpy.linalg.norm(difference))
    return float(numpy.linalg.norm(numpy.nan_to_num(difference, nan=0.0))) if math.isnan(found) else found


def _is_usable(values: Array) -> bool:
    largest = numpy.abs(_wide(values)).max()
    return bool(numpy.isfinite(largest) and largest > 0)


def _size(values: Array, of: Array) -> Array:
    """Return ⟨of, values⟩ / ⟨of, of⟩, the real part, in float32."""
    of = _wide(of)
    return numpy.asarray((numpy.vdot(of, _wide(values)) / numpy.vdot(of, of)).real, numpy.float32)
