"""Reductions over dimensions that are merged into one, and matrix products by ``einsum``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from .common import Array, Implementation, flattened, kept


def _reduction(function: Callable[..., Array]) -> Implementation:
    """Turn a function that reduces the last dimension into a reduction over any dimensions."""

    def reduce(values: Array, *, dim: Any, keepdim: bool = False, **attributes: Any) -> Array:
        merged, dims = flattened(values, dim)
        return kept(function(merged, **attributes), dims, keepdim)

    return reduce


def _counted(values: Array) -> Array:
    return values.astype(np.int64) if values.dtype.kind in "biu" else values


def _product(values: Array) -> Array:
    whole = _counted(values)
    columns = [whole[..., i] for i in range(whole.shape[-1])]
    return functools.reduce(np.multiply, columns, np.ones(whole.shape[:-1], whole.dtype))


def _variance(values: Array, *, correction: int) -> Array:
    count = values.shape[-1]
    biased = np.var(values, axis=-1) if count else np.full(values.shape[:-1], np.nan, values.dtype)
    return biased * values.dtype.type(count) / values.dtype.type(max(count - correction, 0))


def _first(wanted: Array) -> Array:
    """Return the first position in the last dimension where ``wanted`` is true."""
    size = wanted.shape[-1]
    return np.where(wanted, np.arange(size), size).min(axis=-1)


def _position(best: Callable[..., Array]) -> Callable[[Array], Array]:
    def find(values: Array) -> Array:
        peak = best(values, axis=-1, keepdims=True)
        return _first((values == peak) | (values != values))

    return find


def _arg(best: Callable[..., Array]) -> Implementation:
    find = _position(best)

    def search(values: Array, *, dim: int | None, keepdim: bool) -> Array:
        merged, dims = flattened(values, dim)
        if values.dtype.kind == "f" and np.isnan(merged).any():
            nan = np.isnan(merged)
            found = np.where(nan.any(axis=-1), _first(nan), find(np.where(nan, 0, merged)))
        else:
            found = find(merged)
        return kept(found, dims, keepdim)

    return search


def _log_sum_exp(values: Array) -> Array:
    return np.logaddexp.reduce(values, axis=-1, initial=values.dtype.type(-np.inf))


def _norm(values: Array, *, ord: float | str) -> Array:
    order = float(ord)
    if values.shape[-1] == 0:
        return np.zeros(values.shape[:-1], values.dtype)
    return np.linalg.norm(values, order, axis=-1)


def _einsum(formula: str) -> Implementation:
    return lambda *inputs: np.einsum(formula, *inputs)


def _matmul(left: Array, right: Array) -> Array:
    formula = {
        (True, True): "i,i->",
        (True, False): "i,...ij->...j",
        (False, True): "...ij,j->...i",
        (False, False): "...ij,...jk->...ik",
    }[left.ndim == 1, right.ndim == 1]
    return np.einsum(formula, left, right)


def _added(added: Array, left: Array, right: Array, *, beta: float, alpha: float) -> Array:
    number = left.dtype.type
    product = _matmul(left * number(alpha), right)
    return product if beta == 0 else product + added * number(beta)


def _gemm(
    left: Array,
    right: Array,
    added: Array,
    *,
    transpose_a: bool,
    transpose_b: bool,
    alpha: float,
    beta: float,
) -> Array:
    formula = f"{'ki' if transpose_a else 'ik'},{'jk' if transpose_b else 'kj'}->ij"
    number = left.dtype.type
    product = np.einsum(formula, left * number(alpha), right)
    return product if beta == 0 else product + added * number(beta)


OPERATORS: dict[str, Implementation] = {
    "sum": _reduction(lambda values: np.einsum("...i->...", _counted(values))),
    "mean": _reduction(lambda values: np.add.reduce(values, axis=-1) / values.dtype.type(values.shape[-1])),
    "prod": _reduction(_product),
    "amax": _reduction(lambda values: np.maximum.reduce(values, axis=-1)),
    "amin": _reduction(lambda values: np.minimum.reduce(values, axis=-1)),
    "var": _reduction(_variance),
    "std": _reduction(lambda values, *, correction: np.sqrt(_variance(values, correction=correction))),
    "any": _reduction(lambda values: np.count_nonzero(values, axis=-1) > 0),
    "all": _reduction(lambda values: np.count_nonzero(values, axis=-1) == values.shape[-1]),
    "count_nonzero": _reduction(lambda values: np.count_nonzero(values, axis=-1)),
    "argmax": _arg(np.max),
    "argmin": _arg(np.min),
    "logsumexp": _reduction(_log_sum_exp),
    "vector_norm": _reduction(_norm),
    "matmul": _matmul,
    "mm": _einsum("ik,kj->ij"),
    "bmm": _einsum("bik,bkj->bij"),
    "mv": _einsum("ik,k->i"),
    "dot": _einsum("i,i->"),
    "outer": _einsum("i,j->ij"),
    "addmm": _added,
    "baddbmm": _added,
    "gemm": _gemm,
    "linear": lambda values, weight, bias: np.einsum("...i,oi->...o", values, weight) + bias,
    "bilinear": lambda left, right, weight, bias: (
        np.einsum("...i,kij,...j->...k", left, weight, right) + bias
    ),
}
