"""The records of a comparison, with their text and their JSON form.

``comparator`` fills these records in; nothing here judges anything.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from .tolerance import Tolerance

Mode = Literal["allclose", "accuracy", "exact"]
Rule = Literal["exact", "tolerance", "accuracy"]


@dataclass(frozen=True, slots=True)
class Worst:
    """The element that is furthest beyond its limit (or, if all pass, closest to it)."""

    index: tuple[int, ...]
    actual: bool | int | float | complex
    expected: bool | int | float | complex
    abs_error: float
    ulp_error: int | None


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Errors against a wider reference, compared with the errors of the control.

    ``error`` and ``control_error`` are the largest finite |value − reference|. ``ulp_error`` and
    ``control_ulp_error`` are the largest in ULPs of the results' dtype at the reference. ``violations``
    counts the elements that break the rule. ``excused`` counts those that are beyond its limit but within
    their bound on rounding errors.
    """

    factor: float
    error: float
    control_error: float
    ulp_error: float
    control_ulp_error: float
    violations: int
    excused: int = 0

    @property
    def passed(self) -> bool:
        return self.violations == 0

    def text(self) -> str:
        """Return a phrase with the errors and the limit."""
        excused = f", {self.excused} beyond it explained by rounding" if self.excused else ""
        return (
            f"error {self.error:.3g} ({self.ulp_error:.3g} ULP) against the reference, "
            f"control's {self.control_error:.3g} ({self.control_ulp_error:.3g} ULP), "
            f"limit {self.factor:g} times{excused}"
        )


@dataclass(frozen=True, slots=True)
class Comparison:
    """The verdict on one array, and the metrics behind it.

    ``passed_by`` is the rule that the array satisfies, or None if it fails. Elements are compared only if
    shape and dtype agree; otherwise ``count`` is 0. ``mismatches`` counts the elements that break
    ``tolerance`` (in mode ``exact`` and for integers and bools: that differ), even if ``accuracy`` then lets
    them pass.

    ``max_abs`` ignores NaNs and is infinite if an infinity disagrees; for integers it is an exact int.
    ``max_rel`` ignores elements whose expected value is 0. ``max_ulp`` is None for integers and bools.
    ``nan_mismatches``, ``inf_mismatches`` (an infinity against anything but itself or NaN),
    ``sign_mismatches`` (of nonzero values) and ``signed_zero_mismatches`` count disagreements, whether or not
    they break the tolerance.
    """

    mode: Mode
    tolerance: Tolerance
    passed_by: Rule | None
    shape: tuple[int, ...]
    expected_shape: tuple[int, ...]
    dtype: str
    expected_dtype: str
    count: int = 0
    mismatches: int = 0
    max_abs: float = 0
    max_rel: float = 0.0
    max_ulp: int | None = None
    nan_mismatches: int = 0
    inf_mismatches: int = 0
    sign_mismatches: int = 0
    signed_zero_mismatches: int = 0
    worst: Worst | None = None
    accuracy: Accuracy | None = None

    @property
    def passed(self) -> bool:
        return self.passed_by is not None

    @property
    def same_form(self) -> bool:
        """Whether shape and dtype agree, so that elements were compared."""
        return self.shape == self.expected_shape and self.dtype == self.expected_dtype

    @property
    def mismatch_share(self) -> float:
        """Mismatching elements as a fraction of all (0.0 for an empty array)."""
        return self.mismatches / self.count if self.count else 0.0

    def summary(self) -> str:
        """Return the verdict and its reason in one line."""
        if not self.same_form:
            return "mismatch: " + "; ".join(self._form_differences())
        what = f"{self.count} {self.dtype} element{'' if self.count == 1 else 's'}"
        if self.passed_by == "accuracy" and self.accuracy is not None:
            return f"passed by accuracy: {what}, {self.accuracy.text()}"
        if self.passed:
            errors = "" if self.worst is None else f" (max abs {self.max_abs:.3g}{_ulp(self.max_ulp)})"
            return f"passed: {what}, {self._limit()}{errors}"
        if self.mode == "accuracy" and self.accuracy is not None:
            return f"mismatch: {self.accuracy.violations} of {what}, {self.accuracy.text()}{self._worst()}"
        share = f"{self.mismatches} of {what} ({100 * self.mismatch_share:.3g} %)"
        return f"mismatch: {share} not {self._limit()}{self._worst()}"

    def describe(self) -> str:
        """Return :meth:`summary`, followed by one line for each relevant metric."""
        lines = [self.summary()]
        if self.same_form:
            lines.append(f"shape {list(self.shape)}, dtype {self.dtype}, mode {self.mode}")
        if self.worst is not None:
            errors = f"absolute {self.max_abs:.3g}, relative {self.max_rel:.3g}{_ulp(self.max_ulp)}"
            lines.append(f"largest errors: {errors}")
            if self.passed:
                lines.append(f"closest call{self._worst().removeprefix('; worst')}")
        counts = {
            "NaN": self.nan_mismatches,
            "infinity": self.inf_mismatches,
            "sign": self.sign_mismatches,
            "sign of zero": self.signed_zero_mismatches,
        }
        if any(counts.values()):
            lines.append(
                "disagreements: " + ", ".join(f"{name} {count}" for name, count in counts.items() if count)
            )
        if self.accuracy is not None:
            verdict = "holds" if self.accuracy.passed else f"{self.accuracy.violations} elements break it"
            lines.append(f"accuracy: {self.accuracy.text()}: {verdict}")
        return "\n  ".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields, the verdict and the share of mismatches, with JSON types only.

        NaN and infinities become the strings ``"nan"``, ``"inf"``, ``"-inf"``; complex values become
        ``{"real": …, "imag": …}``, and tuples become lists.
        """
        return {**_record(self), "passed": self.passed, "mismatch_share": self.mismatch_share}

    def _form_differences(self) -> list[str]:
        found = []
        if self.shape != self.expected_shape:
            found.append(f"shape {list(self.shape)}, expected {list(self.expected_shape)}")
        if self.dtype != self.expected_dtype:
            found.append(f"dtype {self.dtype}, expected {self.expected_dtype}")
        return found

    def _limit(self) -> str:
        if self.tolerance.rtol == self.tolerance.atol == 0:
            return "equal"
        return f"within rtol {self.tolerance.rtol:g}, atol {self.tolerance.atol:g}"

    def _worst(self) -> str:
        if self.worst is None:
            return ""
        one = self.worst
        return (
            f"; worst at {list(one.index)}: actual {one.actual!r}, expected {one.expected!r}"
            f" (abs {one.abs_error:.3g}{_ulp(one.ulp_error)})"
        )


@dataclass(frozen=True, slots=True)
class TreeComparison:
    """The verdict on nested outputs.

    ``leaves`` pairs each array's path (``"[0]['weight']"``, or ``""`` for a bare array) with its comparison.
    ``differences`` are the places where the trees themselves, or leaves that are not arrays, differ.
    """

    leaves: tuple[tuple[str, Comparison], ...]
    differences: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        return not self.differences and all(leaf.passed for _, leaf in self.leaves)

    @property
    def failures(self) -> tuple[tuple[str, Comparison], ...]:
        return tuple((path, leaf) for path, leaf in self.leaves if not leaf.passed)

    def summary(self) -> str:
        """Return the verdict and the first reason in one line."""
        if self.passed:
            by_accuracy = sum(leaf.passed_by == "accuracy" for _, leaf in self.leaves)
            note = f", {by_accuracy} by accuracy" if by_accuracy else ""
            return f"passed: {len(self.leaves)} output{'' if len(self.leaves) == 1 else 's'}{note}"
        reasons = [*self.differences, *(f"{_place(path)}: {leaf.summary()}" for path, leaf in self.failures)]
        more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
        return reasons[0] + more

    def describe(self) -> str:
        """Return every difference, then the description of every array."""
        arrays = (f"{_place(path)}: {leaf.describe()}" for path, leaf in self.leaves)
        return "\n".join([*self.differences, *arrays])

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict on the tree with JSON types only; see :meth:`Comparison.to_dict`."""
        return {
            "passed": self.passed,
            "differences": list(self.differences),
            "leaves": [{"path": path, **leaf.to_dict()} for path, leaf in self.leaves],
        }


_PLAIN = frozenset({bool, int, str, type(None)})


def json_safe(value: Any) -> Any:
    """Convert ``value`` to types of strict JSON; see :meth:`Comparison.to_dict`."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, list | tuple):
        return [json_safe(one) for one in value]
    if isinstance(value, Mapping):
        return {str(key): json_safe(one) for key, one in value.items()}
    if isinstance(value, complex):
        return {"real": json_safe(value.real), "imag": json_safe(value.imag)}
    return value


def _record(record: Any) -> dict[str, Any]:
    """Return the fields of one of this module's records, or of a tolerance, with JSON types."""
    found = {}
    for name in record.__slots__:
        value = getattr(record, name)
        if type(value) not in _PLAIN:
            value = _record(value) if hasattr(value, "__slots__") else json_safe(value)
        found[name] = value
    return found


def _place(path: str) -> str:
    return f"output{path}"


def _ulp(distance: int | None) -> str:
    return "" if distance is None else f", {distance} ULP"
