"""Scaled dot-product attention and its gradient, computed in blocks if there are many scores.

The scores of a head form a matrix with one row per query and one column per key. Up to ``_WHOLE`` scores
are computed at once. If there are more, loops go through the heads, and within a head through blocks of
queries; each block is computed with all the keys that its queries see. Memory then grows with the sequence
length, not with its square. The products are single matrix products, which engines compute faster than
batches of them. The gradient recomputes the scores, as PyTorch's flash attention does.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from .. import hlo
from ..dtypes import INT32, INT64
from ..hlo import Value
from .common import fill, restore

_WHOLE = 1 << 23
"""The maximum number of scores to compute at once: 32 MiB of float32."""
_FEW = 128
"""With at most this many queries or keys, memory grows linearly anyway, so scores are computed at once."""
_BLOCK = 1 << 21
"""The approximate number of scores in one block: 8 MiB of float32."""
_ROWS = 512
"""The maximum number of queries in one block."""
_PARTS = 4
"""The number of parts that the queries of causal attention are divided into. Each part needs only some of the
keys: the first quarter of the queries sees at most a quarter of the keys."""


@dataclass(frozen=True)
class Sight:
    """Which keys a query sees, and the ``scale`` of its scores.

    ``mask`` is boolean or additive. With ``causal``, a query sees only the keys up to its own position.
    """

    mask: Value | None
    causal: bool
    scale: float


def attend(query: Value, key: Value, value: Value, sight: Sight) -> tuple[Value, Value]:
    """Return attention and the logarithm of the softmax denominators (0 for a row without keys).

    Queries are ``(…, heads, L, E)``, keys and values ``(…, key heads, S, E)``. The other leading axes are
    equal.
    """
    if (matrices := _matrices(query, key, sight)) is not None:
        return matrices.attend(query, key, value)
    heads = _Heads(query, key)
    weights, total, peak = _softmax(_seen(heads.scores(query, key), sight))
    mixed = _heads_inside(heads.unfold(heads.product(heads.fold(weights), value, (-1, -2))))
    share = mixed / restore(_heads_inside(total, 1), mixed.shape, [mixed.rank - 1])
    return _heads_inside(share), hlo.log(total) + peak


def attend_gradient(
    grad: Value, query: Value, key: Value, value: Value, out: Value, logsumexp: Value, sight: Sight
) -> Sequence[Value]:
    """Return the gradients of :func:`attend` with respect to query, key and value.

    ``grad`` is the gradient of its first result; ``out`` and ``logsumexp`` are its results.
    """
    along = _heads_inside(hlo.reduce_sum(_heads_inside(grad) * _heads_inside(out), [query.rank - 1]), 1)
    if (matrices := _matrices(query, key, sight)) is not None:
        return matrices.gradient(grad, query, key, value, along, logsumexp)
    heads = _Heads(query, key)
    weights = _weights(_seen(heads.scores(query, key), sight), logsumexp)
    folded = heads.fold(grad)
    through = heads.unfold(heads.product(folded, value, (-1, -1)))
    slopes = heads.fold(_slopes(weights, through, along, sight))
    return (
        heads.unfold(heads.product(slopes, key, (-1, -2))),
        heads.product(slopes, heads.fold(query), (-2, -2)),
        heads.product(heads.fold(weights), folded, (-2, -2)),
    )


def _heads_inside(x: Value, trailing: int = 2) -> Value:
    """Convert ``(…, heads, L, E)`` to ``(…, L, heads, E)``, or back.

    ``trailing`` is the number of axes from the second swapped one to the end. Attention computes its result
    in the second form, and the gradient reads it in that form: models next merge the heads of each row, and
    PyTorch's kernel also stores it this way. Otherwise, XLA would keep both forms for the backward pass.
    """
    place = x.rank - trailing
    if place == 0:
        return x
    order = list(range(x.rank))
    order[place - 1 : place + 1] = place, place - 1
    return hlo.transpose(x, order)


class _Heads:
    """Query heads grouped by the key heads that they share.

    Folding makes the queries of one group rows of one matrix, so keys need not be repeated.
    """

    def __init__(self, query: Value, key: Value) -> None:
        self.query_shape = query.shape
        self.lead = key.shape[:-2]
        self.batch = list(range(len(self.lead)))

    def fold(self, x: Value) -> Value:
        """Fold ``(…, heads, L, n)`` to ``(…, key heads, group · L, n)``."""
        if hlo.same_shape(x.shape[:-2], self.lead):
            return x
        group = x.shape[-3] // self.lead[-1]
        return hlo.reshape(x, (*self.lead, group * x.shape[-2], x.shape[-1]))

    def unfold(self, x: Value) -> Value:
        """Unfold to one matrix per query head."""
        return hlo.reshape(x, (*self.query_shape[:-1], x.shape[-1]))

    def product(self, x: Value, y: Value, contract: tuple[int, int]) -> Value:
        """Multiply matrices of folded values; ``contract`` names the summed axis of each (−1 or −2)."""
        axes = ([x.rank + contract[0]], [y.rank + contract[1]])
        return hlo.dot_general(x, y, contract=axes, batch=(self.batch, self.batch))

    def scores(self, query: Value, key: Value) -> Value:
        """Multiply all queries and keys: ``(…, heads, L, S)``."""
        return self.unfold(self.product(self.fold(query), key, (-1, -1)))


# Scores of any leading axes --------------------------------------------------------------


def _seen(scores: Value, sight: Sight, first: Value | None = None) -> Value:
    """Scale the scores, with −∞ for keys that are not seen. ``first`` is the first query's position."""
    scores = scores * sight.scale
    if sight.causal:
        rows, columns = (hlo.index_of(scores, scores.rank + axis, INT64) for axis in (-2, -1))
        if first is not None:
            rows = rows + fill(hlo.convert(first, INT64), rows.shape)
        scores = hlo.select(columns <= rows, scores, float("-inf"))
    if sight.mask is None:
        return scores
    mask = hlo.broadcast_to(sight.mask, scores.shape)
    if mask.dtype.is_bool:
        return hlo.select(mask, scores, float("-inf"))
    return scores + mask


def _softmax(scores: Value) -> tuple[Value, Value, Value]:
    """Return ``exp(score − peak)``, its sum over each row, and each row's largest score ``peak``.

    In a row without keys, the sum is 1 and ``peak`` is 0.
    """
    last = [scores.rank - 1]
    peak = hlo.reduce_max(scores, last)
    # A row without keys has the maximum −inf, and −inf − −inf would be NaN.
    peak = hlo.select(hlo.eq(peak, float("-inf")), 0.0, peak)
    weights = hlo.exponential(scores - restore(peak, scores.shape, last))
    total = hlo.reduce_sum(weights, last)
    return weights, hlo.select(hlo.eq(total, 0.0), 1.0, total), peak


def _weights(scores: Value, logsumexp: Value) -> Value:
    """Compute the softmax of scores from the logarithms of its denominators."""
    return hlo.exponential(scores - restore(logsumexp, scores.shape, [scores.rank - 1]))


def _slopes(weights: Value, through: Value, along: Value, sight: Sight) -> Value:
    """Return the gradient with respect to the products of queries and keys.

    ``through`` is the gradient with respect to the softmax. ``along`` is the product of the result and its
    gradient, summed over the width.
    """
    return weights * (through - restore(along, weights.shape, [weights.rank - 1])) * sight.scale


# One head and some queries at a time -----------------------------------------------------


def _matrices(query: Value, key: Value, sight: Sight) -> _Matrices | None:
    """Return the loops for many scores; None if all are computed at once, as with symbolic sizes."""
    mask = () if sight.mask is None else sight.mask.shape
    if not all(hlo.is_static(shape) for shape in (query.shape, key.shape, mask)):
        return None
    *lead, length, _ = (hlo.static_dim(size) or 0 for size in query.shape)
    keys = hlo.static_dim(key.shape[-2]) or 0
    if min(length, keys) <= _FEW or math.prod(lead) * length * keys <= _WHOLE:
        return None
    key_heads = math.prod(hlo.static_dim(size) or 0 for size in key.shape[:-2])
    return _Matrices(lead, length, keys, math.prod(lead) // key_heads, sight)


@dataclass(frozen=True)
class _Matrices:
    """Loops over the ``lead`` axes and ``length`` queries.

    ``keys`` is the number of keys. ``group`` query heads share one key head.
    """

    lead: Sequence[int]
    length: int
    keys: int
    group: int
    sight: Sight

    def attend(self, query: Value, key: Value, value: Value) -> tuple[Value, Value]:
        queries, keys, values = (self._as_matrices(each) for each in (query, key, value))
        width = value.shape[-1]

        def head(n: Value, mixed: Value, logsumexp: Value) -> list[Value]:
            shared = n / self.group
            own, own_keys, own_values = (
                _row(x, at) for x, at in ((queries, n), (keys, shared), (values, shared))
            )

            def block(start: Value, count: int, seen: int, mixed: Value, logsumexp: Value) -> list[Value]:
                products = hlo.dot(_rows(own, start, count), _transposed(_first(own_keys, seen)))
                weights, total, peak = _softmax(self._seen(products, n, start))
                new = hlo.dot(weights, _first(own_values, seen)) / restore(total, (count, width), [1])
                return [_put(mixed, new, start), _put(logsumexp, hlo.log(total) + peak, start)]

            empty = [hlo.full(shape, 0, query.dtype) for shape in ((self.length, width), (self.length,))]
            done = self._in_blocks(block, empty)
            return [_put_row(x, new, n) for x, new in zip((mixed, logsumexp), done, strict=True)]

        count = math.prod(self.lead)
        shapes = [(count, self.length, width), (count, self.length)]
        mixed, logsumexp = self._each_head(head, [hlo.full(shape, 0, query.dtype) for shape in shapes])
        return hlo.reshape(mixed, (*self.lead, self.length, width)), hlo.reshape(logsumexp, query.shape[:-1])

    def gradient(
        self, grad: Value, query: Value, key: Value, value: Value, along: Value, logsumexp: Value
    ) -> Sequence[Value]:
        rows = [self._as_matrices(each) for each in (grad, query)]
        rows += [hlo.reshape(each, (math.prod(self.lead), self.length)) for each in (along, logsumexp)]
        keys, values = (self._as_matrices(each) for each in (key, value))

        def head(n: Value, of_query: Value, of_key: Value, of_value: Value) -> list[Value]:
            shared = n / self.group
            own = [_row(each, n) for each in rows]
            own_keys, own_values = _row(keys, shared), _row(values, shared)

            def block(
                start: Value, count: int, seen: int, of_query: Value, of_key: Value, of_value: Value
            ) -> list[Value]:
                upstream, queries, along, logsumexp = (_rows(each, start, count) for each in own)
                seen_keys, seen_values = _first(own_keys, seen), _first(own_values, seen)
                products = hlo.dot(queries, _transposed(seen_keys))
                weights = _weights(self._seen(products, n, start), logsumexp)
                through = hlo.dot(upstream, _transposed(seen_values))
                slopes = _slopes(weights, through, along, self.sight)
                return [
                    _put(of_query, hlo.dot(slopes, seen_keys), start),
                    _add_first(of_key, hlo.dot(_transposed(slopes), queries)),
                    _add_first(of_value, hlo.dot(_transposed(weights), upstream)),
                ]

            done = self._in_blocks(block, [hlo.zeros_like(each) for each in (own[1], own_keys, own_values)])
            new = [
                done[0],
                *(_row(x, shared) + more for x, more in zip((of_key, of_value), done[1:], strict=True)),
            ]
            at = (n, shared, shared)
            return [
                _put_row(x, row, to) for x, row, to in zip((of_query, of_key, of_value), new, at, strict=True)
            ]

        found = self._each_head(head, [hlo.zeros_like(each) for each in (rows[1], keys, values)])
        return [hlo.reshape(x, like.shape) for x, like in zip(found, (query, key, value), strict=True)]

    def _as_matrices(self, x: Value) -> Value:
        """Merge the leading axes of ``(…, L, E)`` into one."""
        return hlo.reshape(x, (math.prod(x.shape[:-2]), *x.shape[-2:]))

    def _each_head(self, head: Callable[..., list[Value]], state: Sequence[Value]) -> list[Value]:
        return hlo.fori(hlo.scalar(math.prod(self.lead), INT32), head, state)

    def _in_blocks(self, block: Callable[..., list[Value]], state: Sequence[Value]) -> list[Value]:
        """Run ``block(start, count, seen, *state)`` for each block of queries.

        The queries of a block see only the first ``seen`` keys.
        """
        done = list(state)
        for begin, end, seen in self._parts():
            rows = min(_ROWS, max(_BLOCK // seen, 1), end - begin)
            blocks, rest = divmod(end - begin, rows)

            def one(
                i: Value, *state: Value, begin: int = begin, rows: int = rows, seen: int = seen
            ) -> list[Value]:
                return block(i * rows + begin, rows, seen, *state)

            done = hlo.fori(hlo.scalar(blocks, INT32), one, done)
            if rest:
                done = block(hlo.scalar(end - rest, INT32), rest, seen, *done)
        return done

    def _parts(self) -> Iterator[tuple[int, int, int]]:
        """Yield ``(begin, end, seen)`` for each range of queries, which sees at most ``seen`` keys."""
        if not self.sight.causal:
            yield 0, self.length, self.keys
            return
        ends = [self.length * part // _PARTS for part in range(_PARTS + 1)]
        for begin, end in itertools.pairwise(ends):
            yield begin, end, min(end, self.keys)

    def _seen(self, products: Value, n: Value, start: Value) -> Value:
        """Apply :func:`_seen` to products of the first keys and head ``n``'s queries from ``start`` on."""
        mask, (count, seen) = self.sight.mask, products.shape
        if mask is not None:
            places: list[Value] = []
            for size in reversed(self.lead):
                n, place = n / size, hlo.remainder(n, size)
                places.insert(0, place)
            places += [start, hlo.scalar(0, INT32)]
            sizes = [1] * len(self.lead) + [count, seen]
            shape = (*[1] * (len(sizes) - mask.rank), *mask.shape)
            zero = hlo.scalar(0, INT32)
            starts = [zero if whole == 1 else place for whole, place in zip(shape, places, strict=True)]
            kept = [1 if whole == 1 else size for whole, size in zip(shape, sizes, strict=True)]
            mask = hlo.reshape(hlo.dynamic_slice(hlo.reshape(mask, shape), starts, kept), kept[-2:])
        return _seen(products, Sight(mask, self.sight.causal, self.sight.scale), start)


def _transposed(x: Value) -> Value:
    return hlo.transpose(x, (1, 0))


def _first(x: Value, count: int) -> Value:
    return hlo.slice_axis(x, 0, 0, count)


def _add_first(x: Value, more: Value) -> Value:
    """Add ``more`` to the first rows of ``x``."""
    count = hlo.static_dim(more.shape[0]) or 0
    return _put(x, _first(x, count) + more, hlo.scalar(0, INT32))


def _rows(x: Value, start: Value, count: int) -> Value:
    return hlo.dynamic_slice(x, _starts(x, start), [count, *x.shape[1:]])


def _row(x: Value, place: Value) -> Value:
    return hlo.reshape(_rows(x, place, 1), x.shape[1:])


def _put(x: Value, rows: Value, start: Value) -> Value:
    return hlo.dynamic_update_slice(x, rows, _starts(x, start))


def _put_row(x: Value, row: Value, place: Value) -> Value:
    return _put(x, hlo.reshape(row, (1, *row.shape)), place)


def _starts(x: Value, start: Value) -> list[Value]:
    return [start, *[hlo.scalar(0, start.dtype)] * (x.rank - 1)]
