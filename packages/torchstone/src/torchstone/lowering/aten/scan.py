"""Running sums, products, extremes and log-sum-exps, linear recurrences, and differences of neighbors.

Not here: reductions, the higher-order operators ``scan`` and
``associative_scan`` (``control_flow``).

Each running result is a composite around a parallel prefix scan (``hlo.associative_scan``), except that
complex log-sum-exps are added one by one. Linear recurrences are loops. 16-bit floats are computed in
float32, other numbers in the result's dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ... import hlo
from ...dtypes import BOOLEAN, COMPLEX, EVERY, FLOATING, INT64, REAL, STANDARD, SUB_BYTE
from ...hlo import Value
from ...torch_internals.operators import namespace
from ..common import axis_of, cast, counter, is_empty
from ..composites import Expand, expanded
from ..own import own
from ..promotion import opmath
from ..registry import Spec, lowers

aten = namespace("aten")

Combine = Callable[..., Value | Sequence[Value]]
Scan = Callable[[Sequence[Value], int, Combine], Sequence[Value]]


def _scanned(
    name: str,
    self: Value,
    dim: int,
    out: Sequence[Spec],
    combine: Combine,
    start: Callable[[Value, int], Sequence[Value]] = lambda x, _: [x],
    scan: Scan = hlo.associative_scan,
) -> list[Value]:
    """Make the prefix scan of ``start(x, axis)`` the composite ``torchstone.<name>``."""
    axis = axis_of(dim, self.rank)

    def decomposition(x: Value) -> list[Value]:
        values = start(cast(x, opmath(out[0].dtype)), axis)
        if x.rank and not is_empty(x.shape):
            values = scan(values, axis, combine)
        return [hlo.convert(value, spec.dtype) for value, spec in zip(values, out, strict=True)]

    attributes: dict[str, hlo.Attribute] = {"axis": axis, "dtypes": [spec.dtype.name for spec in out]}
    return hlo.composite(f"torchstone.{name}", [self], decomposition, attributes)


@lowers(aten.cumsum.default, dtypes=EVERY - SUB_BYTE, ignores=("dtype",))
def cumsum(self: Value, dim: int, out: Spec) -> list[Value]:
    """Running sum along ``dim`` in the result's dtype."""
    add: Combine = (lambda a, b: a | b) if out.dtype.is_bool else (lambda a, b: a + b)
    return _scanned("cumsum", self, dim, [out], add)


@lowers(aten.cumprod.default, dtypes=EVERY - SUB_BYTE, ignores=("dtype",))
def cumprod(self: Value, dim: int, out: Spec) -> list[Value]:
    """Running product along ``dim`` in the result's dtype."""
    multiply: Combine = (lambda a, b: a & b) if out.dtype.is_bool else (lambda a, b: a * b)
    return _scanned("cumprod", self, dim, [out], multiply)


def _later_if(better: Callable[[Value, Value], Value]) -> Combine:
    """Keep the better of two (value, index) pairs; among equal values or NaNs, keep the later one."""

    def combine(value: Value, index: Value, later_value: Value, later_index: Value) -> Sequence[Value]:
        move = better(later_value, value)
        if value.dtype.is_floating:
            move = hlo.is_nan(later_value) | (move & ~hlo.is_nan(value))
        return hlo.select(move, later_value, value), hlo.select(move, later_index, index)

    return combine


def _with_index(x: Value, axis: int) -> Sequence[Value]:
    """Return ``x`` and its indices along the axis: int32 if possible, which halves the memory traffic."""
    if not x.rank:
        return x, hlo.scalar(0, INT64)
    return x, hlo.index_of(x, axis, counter(x.shape[axis]))


@lowers(aten.cummax.default, dtypes=REAL | BOOLEAN)
def cummax(self: Value, dim: int, out: Sequence[Spec]) -> list[Value]:
    """Running maximum along ``dim`` and the last index where it occurs."""
    at_least = _later_if(lambda later, earlier: later >= earlier)
    return _scanned("cummax", self, dim, out, at_least, _with_index)


@lowers(aten.cummin.default, dtypes=REAL | BOOLEAN)
def cummin(self: Value, dim: int, out: Sequence[Spec]) -> list[Value]:
    """Running minimum along ``dim`` and the last index where it occurs."""
    at_most = _later_if(lambda later, earlier: later <= earlier)
    return _scanned("cummin", self, dim, out, at_most, _with_index)


def _add_exponentials(a: Value, b: Value) -> Value:
    """``log(exp(a) + exp(b))`` without overflow; equal infinities are unchanged."""
    if a.dtype.is_complex:
        swap = hlo.real(a) > hlo.real(b)
        low, high = hlo.select(swap, b, a), hlo.select(swap, a, b)
        settled = ~hlo.is_finite(hlo.real(low)) & hlo.eq(hlo.real(low), hlo.real(high))
    else:
        low, high = hlo.minimum(a, b), hlo.maximum(a, b)
        settled = ~hlo.is_finite(low) & hlo.eq(low, high)
    return hlo.select(settled, high, hlo.log_plus_one(hlo.exponential(low - high)) + high)


@lowers(aten.logcumsumexp.default, dtypes=FLOATING | COMPLEX)
def logcumsumexp(self: Value, dim: int, out: Spec) -> list[Value]:
    """Logarithm of the running sum of exponentials along ``dim``."""
    # For complex numbers, the order of additions decides the branch of each logarithm.
    scan = _one_by_one if self.dtype.is_complex else hlo.associative_scan
    return _scanned("logcumsumexp", self, dim, [out], _add_exponentials, scan=scan)


def _one_by_one(values: Sequence[Value], axis: int, _: Combine) -> Sequence[Value]:
    """Scan by adding the exponentials of one element after the other, in order."""
    x = hlo.move_axis(values[0], axis, 0)
    zero = hlo.scalar(0, INT64)

    def step(i: Value, last: Value, sums: Value) -> Sequence[Value]:
        row = hlo.take(x, hlo.reshape(i, (1,)), 0)
        total = _add_exponentials(last, row)
        return total, hlo.dynamic_update_slice(sums, total, [i, *(zero for _ in x.shape[1:])])

    nothing = hlo.full((1, *x.shape[1:]), float("-inf"), x.dtype)
    sums = hlo.fori(hlo.dim_scalar(x.shape[0]), step, [nothing, x])[1]
    return [hlo.move_axis(sums, 0, axis)]


@lowers(own.linear_recurrence.default, dtypes=FLOATING | COMPLEX)
def linear_recurrence(coefficient: Value, input: Value, dim: int, reverse: bool, out: Spec) -> Value:
    """``y[t] = coefficient[t] * y[t - 1] + input[t]`` along ``dim``, or the transposed map of the input."""
    if is_empty(input.shape):
        return input
    axis, zero = axis_of(dim, input.rank), hlo.scalar(0, INT64)
    length = hlo.dim_scalar(input.shape[axis])

    def at(x: Value, t: Value) -> Value:
        return cast(hlo.take(x, hlo.reshape(t, (1,)), axis), opmath(out.dtype))

    def step(i: Value, last: Value, made: Value) -> Sequence[Value]:
        t = length - 2 - i if reverse else i + 1
        y = at(coefficient, t + 1 if reverse else t) * cast(last, opmath(out.dtype)) + at(made, t)
        new = hlo.convert(y, out.dtype)
        start = [t if i == axis else zero for i in range(input.rank)]
        return new, hlo.dynamic_update_slice(made, new, start)

    first = hlo.convert(at(input, length - 1 if reverse else zero), out.dtype)
    return hlo.fori(length - 1, step, [first, input])[1]


@lowers(aten.diff.default, dtypes=STANDARD)
def diff(
    self: Value, n: int, dim: int, prepend: Value | None, append: Value | None, expand: Expand, out: Spec
) -> list[Value]:
    """Differences of neighbors along ``dim``, taken ``n`` times."""
    attributes = {"n": n, "axis": axis_of(dim, self.rank)}
    return expanded("diff", [self, prepend, append], expand, out, attributes)
