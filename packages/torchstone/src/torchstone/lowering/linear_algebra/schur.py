"""Complex Schur form and the eigenvectors of general matrices.

Householder reduction to Hessenberg form is followed by the QR algorithm with Wilkinson's
shifts (Golub and Van Loan, Matrix Computations, 7.4 and 7.5): each sweep chases one bulge
down the active window of every matrix of the batch at once.
"""

from __future__ import annotations

from ... import hlo
from ...dtypes import INT32
from ...hlo import Value
from . import householder, matrices
from .matrices import adjoint, epsilon, index, product, smallest, spread

Givens = tuple[Value, Value]

_SWEEPS_PER_EIGENVALUE = 30
_EXCEPTIONAL = 10
"""After this many sweeps without deflation, another shift is tried."""


def hessenberg(a: Value) -> tuple[Value, Value]:
    """``(H, Q)`` with ``A = Q H Qᴴ`` and H zero below its first subdiagonal."""
    batch, n, _ = a.shape
    rows = matrices.row_of(hlo.slice_axis(a, 2, 0, 1))

    def step(k: Value, a: Value, q: Value) -> list[Value]:
        v, tau, _ = householder.reflector(matrices.column(a, k), k + 1, rows)
        a = householder.reflect(a, v, hlo.conj(tau))
        return [_reflected_from_right(a, v, tau), _reflected_from_right(q, v, tau)]

    h, q = hlo.fori(index(max(n - 2, 0)), step, [a, matrices.identity((batch, n, n), a.dtype)])
    return hlo.select(matrices.row_of(h) - matrices.column_of(h) > 1, hlo.zeros_like(h), h), q


def _reflected_from_right(a: Value, v: Value, tau: Value) -> Value:
    return a - product(product(a, v) * spread(tau, (*a.shape[:-1], 1)), adjoint(v))


def schur(a: Value) -> tuple[Value, Value]:
    """``(T, Q)`` with ``A = Q T Qᴴ``, T upper triangular; ``a`` is complex ``[batch, n, n]``."""
    batch, n, _ = a.shape
    h, q = hessenberg(a)
    if n < 2:
        return h, q
    most = _SWEEPS_PER_EIGENVALUE * n
    none = hlo.full((batch,), 0, INT32)

    def unfinished(sweep: Value, h: Value, q: Value, last: Value, _: Value) -> Value:
        return (sweep < most) & matrices.any_of(last > 0)

    def body(sweep: Value, h: Value, q: Value, last: Value, stalled: Value) -> list[Value]:
        h, q = _sweep(h, q, _window_start(h, last), last, stalled)
        h = _deflated(h)
        remaining = _window_end(h)
        stalled = hlo.select(hlo.eq(remaining, last), stalled + 1, none)
        return [sweep + 1, h, q, remaining, stalled]

    h = _deflated(h)
    _, h, q, _, _ = hlo.while_(unfinished, body, [index(0), h, q, _window_end(h), none])
    return matrices.upper(h), q


def _one_norm(x: Value) -> Value:
    return hlo.abs_(hlo.real(x)) + hlo.abs_(hlo.imag(x))


def _subdiagonal(h: Value) -> Value:
    """Return ``[batch, n]`` with ``h[k, k - 1]`` at ``k`` (zero at 0)."""
    kept = hlo.select(hlo.eq(matrices.row_of(h) - matrices.column_of(h), 1), h, hlo.zeros_like(h))
    return hlo.reduce_sum(kept, [2])


def _deflated(h: Value) -> Value:
    """Set negligible subdiagonal elements to zero."""
    size = _one_norm(matrices.diagonal(h))
    neighbour = hlo.pad_axis(hlo.slice_axis(size, 1, 0, h.shape[1] - 1), 0, 1, 1, 0)
    bound = (size + neighbour) * epsilon(h.dtype) + smallest(h.dtype)
    negligible = hlo.broadcast_in_dim(_one_norm(_subdiagonal(h)) <= bound, h.shape, [0, 1])
    below = hlo.eq(matrices.row_of(h) - matrices.column_of(h), 1)
    return hlo.select(below & negligible, hlo.zeros_like(h), h)


def _window_end(h: Value) -> Value:
    """The last row with a nonzero subdiagonal element, or 0."""
    live = hlo.ne(_subdiagonal(h), 0.0)
    position = hlo.iota(live.shape, 1, INT32)
    return _last(live, position)


def _last(holds: Value, position: Value) -> Value:
    """The largest position where a condition holds, or 0."""
    return hlo.reduce([hlo.select(holds, position, hlo.zeros_like(position))], [0], [1], hlo.maximum)[0]


def _window_start(h: Value, last: Value) -> Value:
    """Return the row where the unreduced block that ends at ``last`` begins."""
    split = hlo.eq(_subdiagonal(h), 0.0)
    position = hlo.iota(split.shape, 1, INT32)
    before = position <= hlo.broadcast_in_dim(last, position.shape, [0])
    return _last(split & before, position)


def _picked(h: Value, rows: Value, columns: Value) -> Value:
    """``h[b, rows[b], columns[b]]``."""
    picked_rows = matrices.taken_rows(h, hlo.expand_dims(rows, [1]))
    return hlo.reshape(matrices.taken_columns(picked_rows, hlo.expand_dims(columns, [1])), rows.shape)


def _shift(h: Value, last: Value, stalled: Value) -> Value:
    """Return the eigenvalue of the window's last 2×2 block that is closer to the block's last element."""
    previous = hlo.maximum(last - 1, 0)
    a, b = _picked(h, previous, previous), _picked(h, previous, last)
    c, d = _picked(h, last, previous), _picked(h, last, last)
    half = (a - d) * 0.5
    root = hlo.sqrt(half * half + b * c)
    plus, minus = half + root, half - root
    far = hlo.select(_one_norm(plus) >= _one_norm(minus), plus, minus)
    vanishing = hlo.eq(far, 0.0)
    near = d - b * c / hlo.select(vanishing, hlo.full_like(far, 1), far)
    exceptional = d + hlo.convert(_one_norm(c), d.dtype)
    turn = hlo.eq(hlo.remainder(stalled, _EXCEPTIONAL), _EXCEPTIONAL - 1)
    return hlo.select(turn, exceptional, hlo.select(vanishing, d, near))


def _sweep(h: Value, q: Value, start: Value, last: Value, stalled: Value) -> tuple[Value, Value]:
    """One implicitly shifted QR step on rows ``start[b]`` … ``last[b]`` of every matrix."""
    batch, n, _ = h.shape
    shift = _shift(h, last, stalled)
    end = hlo.reduce([last], [0], [0], hlo.maximum)[0]
    begin = hlo.reduce_min(start, [0])

    def step(k: Value, h: Value, q: Value) -> list[Value]:
        here = hlo.broadcast_to(k, start.shape)
        first = hlo.eq(here, start)
        before = hlo.maximum(k - 1, 0)
        x = hlo.reshape(matrices.element(h, k, before), (batch,))
        y = hlo.reshape(matrices.element(h, k + 1, before), (batch,))
        x = hlo.select(first, hlo.reshape(matrices.element(h, k, k), (batch,)) - shift, x)
        y = hlo.select(first, hlo.reshape(matrices.element(h, k + 1, k), (batch,)), y)
        active = (here >= start) & (here < last)
        rotation = _givens(x, y, active)
        rows = hlo.dynamic_slice(h, [index(0), k, index(0)], [batch, 2, n])
        h = hlo.dynamic_update_slice(h, _turned(rows, rotation, 1), [index(0), k, index(0)])
        return [_columns_turned(h, k, rotation), _columns_turned(q, k, rotation)]

    def chase(k: Value, h: Value, q: Value) -> list[Value]:
        return [k + 1, *step(k, h, q)]

    _, h, q = hlo.while_(lambda k, *_: k < end, chase, [begin, h, q])
    inside = matrices.row_of(h) - matrices.column_of(h) <= 1
    return hlo.select(inside, h, hlo.zeros_like(h)), q


def _columns_turned(x: Value, k: Value, rotation: Givens) -> Value:
    at = [index(0), index(0), k]
    pair = hlo.dynamic_slice(x, at, [*x.shape[:2], 2])
    c, s = rotation
    return hlo.dynamic_update_slice(x, _turned(pair, (hlo.conj(c), hlo.conj(s)), 2), at)


def _givens(x: Value, y: Value, active: Value) -> Givens:
    """``(c, s)`` with ``[[c̄, s̄], [-s, c]] [x, y] = [r, 0]``; the identity where ``active`` is False."""
    scale = hlo.maximum(_one_norm(x), _one_norm(y))
    usable = active & (scale > 0.0)
    divisor = hlo.convert(hlo.select(usable, scale, hlo.full_like(scale, 1)), x.dtype)
    x, y = x / divisor, y / divisor
    size = hlo.sqrt(matrices.squared_size(x) + matrices.squared_size(y))
    size = hlo.convert(hlo.select(usable, size, hlo.full_like(size, 1)), x.dtype)
    return hlo.select(usable, x / size, hlo.full_like(x, 1)), hlo.select(usable, y / size, hlo.zeros_like(y))


def _turned(pair: Value, rotation: Givens, axis: int) -> Value:
    """Combine two rows (axis 1) or columns (axis 2) with ``[[c̄, s̄], [-s, c]]``."""
    first, second = (hlo.slice_axis(pair, axis, i, i + 1) for i in range(2))
    c, s = (hlo.broadcast_in_dim(x, first.shape, [0]) for x in rotation)
    return hlo.concatenate([hlo.conj(c) * first + hlo.conj(s) * second, c * second - s * first], axis)


def eigenvectors(t: Value, q: Value) -> Value:
    """Unit eigenvectors of ``Q T Qᴴ``, each with a real largest component, in the order of T's diagonal."""
    batch, n, _ = t.shape
    values = matrices.diagonal(t)
    tiny = hlo.reduce_max(hlo.reduce_max(hlo.abs_(t), [2]), [1]) * epsilon(t.dtype)
    tiny = hlo.broadcast_in_dim(hlo.maximum(tiny, smallest(t.dtype)), values.shape, [0])

    def step(i: Value, x: Value) -> list[Value]:
        k = n - 1 - i
        sums = hlo.reshape(product(matrices.row(matrices.upper(t, 1), k), x), values.shape)
        own = hlo.broadcast_to(hlo.reshape(matrices.element(t, k, k), (batch, 1)), values.shape)
        gap = own - values
        gap = hlo.select(hlo.abs_(gap) < tiny, hlo.convert(tiny, gap.dtype), gap)
        distance = hlo.iota(values.shape, 1, INT32) - hlo.broadcast_to(k, values.shape)
        solved = hlo.select(distance > 0, -sums / gap, hlo.zeros_like(sums))
        solved = hlo.select(hlo.eq(distance, 0), hlo.full_like(solved, 1), solved)
        return [hlo.dynamic_update_slice(x, hlo.expand_dims(solved, [1]), [index(0), k, index(0)])]

    x = hlo.fori(index(n), step, [hlo.zeros_like(t)])[0]
    return _normalized(product(q, _unit_columns(x)))


def _unit_columns(x: Value) -> Value:
    largest = hlo.reduce_max(hlo.abs_(x), [1])
    x = matrices.scaled_columns(x, 1.0 / largest)
    return matrices.scaled_columns(x, hlo.rsqrt(hlo.reduce_sum(matrices.squared_size(x), [1])))


def _normalized(v: Value) -> Value:
    """Columns of length 1 whose largest component is real, as LAPACK's ``geev`` returns them."""
    v = _unit_columns(v)
    size = hlo.abs_(v)
    row = matrices.row_of(size)
    peak = hlo.broadcast_in_dim(hlo.reduce_max(size, [1]), size.shape, [0, 2])
    at = hlo.reduce_min(hlo.select(hlo.eq(size, peak), row, hlo.full_like(row, v.shape[1])), [1])
    chosen = hlo.eq(row, hlo.broadcast_in_dim(at, row.shape, [0, 2]))
    leading = hlo.reduce_sum(hlo.select(chosen, v, hlo.zeros_like(v)), [1])
    phase = hlo.conj(leading) / hlo.convert(hlo.abs_(leading), v.dtype)
    v = matrices.scaled_columns(v, phase)
    return hlo.select(chosen, hlo.convert(hlo.real(v), v.dtype), v)
