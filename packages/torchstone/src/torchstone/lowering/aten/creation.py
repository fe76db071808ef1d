"""Tensors from shapes and numbers: constants, ranges, identity matrices.

Tensors that PyTorch leaves uninitialized (``empty`` and its relatives) are zeros, so
that a program has one meaning. Not here: random numbers (``random``), copies of
tensors (``conversion``). Triangle indices are left to PyTorch's decomposition.
"""

from __future__ import annotations

from typing import Any

import torch

from ... import hlo
from ...dtypes import (
    ALL_INTEGRAL,
    COMPLEX,
    COMPLEX128,
    COPYABLE,
    FLOAT8,
    FLOAT32,
    FLOAT64,
    FLOATING,
    INT64,
    SUB_BYTE,
)
from ...hlo import Value
from ...torch_internals.operators import namespace
from ..common import cast
from ..promotion import as_value, opmath
from ..registry import Spec, lowers

aten = namespace("aten")
prims = namespace("prims")

_RANGED = ALL_INTEGRAL | FLOATING
_NO_NIBBLES = dict.fromkeys(SUB_BYTE, "PyTorch has no kernel that reads or writes 4-bit integers")
_EXACT_IN_FLOAT32 = 1 << 24


def _filled(number: Any, out: Spec) -> Value:
    if out.dtype in FLOAT8:
        return hlo.broadcast_to(cast(as_value(number, FLOAT32), out.dtype), out.shape)
    if isinstance(number, (torch.SymInt, Value)):
        return hlo.broadcast_to(cast(as_value(number, out.dtype), out.dtype), out.shape)
    return hlo.full(out.shape, number, out.dtype)


# Constants ------------------------------------------------------------------------------


@lowers(
    aten.full.default,
    prims.full.default,
    dtypes=COPYABLE,
    ignores=("size", "shape", "dtype", "requires_grad"),
)
@lowers(aten.new_full.default, dtypes=COPYABLE, ignores=("self", "size", "dtype"))
@lowers(aten.full_like.default, dtypes=COPYABLE, ignores=("self", "dtype"))
def full(fill_value: Any, *, out: Spec) -> Value:
    """``fill_value`` everywhere."""
    return _filled(fill_value, out)


@lowers(aten.scalar_tensor.default, dtypes=COPYABLE, ignores=("dtype",))
def scalar_tensor(s: Any, *, out: Spec) -> Value:
    """A number as a 0-d tensor."""
    return _filled(s, out)


@lowers(prims.scalar_tensor.default, dtypes=COPYABLE, ignores=("dtype",))
def prims_scalar_tensor(s: Any, *, out: Spec) -> Value:
    """A number as a 0-d tensor."""
    return _filled(s, out)


@lowers(aten.fill.Scalar, dtypes=COPYABLE, ignores=("self",))
def fill_scalar(value: Any, *, out: Spec) -> Value:
    """``value`` everywhere."""
    return _filled(value, out)


@lowers(aten.fill.Tensor, dtypes=COPYABLE, ignores=("self",))
def fill_tensor(value: Value, *, out: Spec) -> Value:
    """The 0-d ``value`` everywhere."""
    return hlo.broadcast_to(cast(value, out.dtype), out.shape)


@lowers(
    aten._efficientzerotensor.default,
    aten.zeros.default,
    aten.empty.memory_format,
    aten.empty_permuted.default,
    aten.empty_strided.default,
    prims.empty_strided.default,
    prims.empty_permuted.default,
    dtypes=COPYABLE,
    gaps=_NO_NIBBLES,
    ignores=("size", "shape", "stride", "strides", "physical_layout", "dtype", "requires_grad"),
)
@lowers(
    aten.zeros_like.default,
    aten.new_zeros.default,
    aten.zero.default,
    aten.empty_like.default,
    aten.new_empty.default,
    aten.new_empty_strided.default,
    aten._new_zeros_with_same_feature_meta.default,  # for tangents of operators with their own formulas
    dtypes=COPYABLE,
    ignores=("self", "size", "stride", "dtype", "other", "self_num_batch_dims"),
)
def zeros(*, out: Spec) -> Value:
    """Zeros, even where PyTorch leaves memory uninitialized."""
    return _filled(0, out)


@lowers(
    aten.ones.default,
    aten.ones_like.default,
    aten.new_ones.default,
    dtypes=COPYABLE,
    ignores=("self", "size", "dtype"),
)
def ones(*, out: Spec) -> Value:
    """Ones."""
    return _filled(1, out)


# Ranges -----------------------------------------------------------------------------------


@lowers(aten.arange.default, dtypes=_RANGED, ignores=("end", "dtype"))
def arange(*, out: Spec) -> Value:
    """0, 1, … below ``end``."""
    return _progression(0, 1, out)


@lowers(aten.arange.start, dtypes=_RANGED, ignores=("end", "dtype"))
def arange_start(start: Any, *, out: Spec) -> Value:
    """``start``, ``start + 1``, … below ``end``."""
    return _progression(start, 1, out)


@lowers(aten.arange.start_step, dtypes=_RANGED, ignores=("end", "dtype"))
def arange_start_step(start: Any, step: Any = 1, *, out: Spec) -> Value:
    """``start``, ``start + step``, … before ``end``."""
    return _progression(start, step, out)


@lowers(prims.iota.default, dtypes=ALL_INTEGRAL, ignores=("length", "dtype", "requires_grad"))
def iota(start: Any, step: Any, *, out: Spec) -> Value:
    """``length`` integers from ``start`` in steps of ``step``."""
    return _progression(start, step, out)


def _progression(start: Any, step: Any, out: Spec) -> Value:
    """``start + i * step``; floats are computed in float64, as in PyTorch, unless float32 is exact."""
    dtype = out.dtype
    if dtype.is_integer:
        start, step = (int(n) if isinstance(n, float) else n for n in (start, step))
    else:
        whole = all(isinstance(n, (int, float)) and n == int(n) for n in (start, step))
        size = out.shape[0]
        exact = whole and isinstance(size, int) and abs(start) + abs(step) * size < _EXACT_IN_FLOAT32
        dtype = FLOAT32 if exact else FLOAT64
    index = hlo.iota(out.shape, 0, dtype)
    first, pace = (hlo.broadcast_to(as_value(n, dtype), out.shape) for n in (start, step))
    return cast(index * pace + first, out.dtype)


def _spaced(start: Any, end: Any, steps: int, out: Spec) -> Value:
    """``steps`` numbers from ``start`` to ``end`` (rounded to the dtype), each from the end nearest to it."""
    inexact = out.dtype in FLOATING | COMPLEX
    dtype = opmath(out.dtype) if inexact else FLOAT64
    first, last = (hlo.convert(cast(as_value(n, dtype), out.dtype), dtype) for n in (start, end))
    if steps == 1:
        return hlo.broadcast_to(first, out.shape)  # ``end`` must not matter: an infinite one would give NaN
    gaps = hlo.optimization_barrier(as_value(max(steps - 1, 1), dtype))
    pace = (last - first) / gaps  # XLA replaces division by a constant with an inexact multiplication
    index = hlo.iota(out.shape, 0, dtype.real)
    place, rest = (hlo.convert(i, dtype) for i in (index, (steps - 1) - index))
    first, last, pace = (hlo.broadcast_to(n, out.shape) for n in (first, last, pace))
    # If ``steps`` is odd, eager PyTorch computes the middle number from ``end``, which matters if that is
    # infinite. For integers it is computed from ``start`` here: XLA fuses the product and the sum, so that
    # 1 - 5 * 0.2 would be just below 0.
    rising = steps // 2 if inexact else (steps + 1) // 2
    return hlo.select(index < float(rising), first + pace * place, last - pace * rest)


@lowers(
    aten.linspace.default,
    aten.linspace.Tensor_Tensor,
    aten.linspace.Tensor_Scalar,
    aten.linspace.Scalar_Tensor,
    dtypes=COPYABLE,
    gaps=_NO_NIBBLES,
    ignores=("dtype",),
)
def linspace(start: Any, end: Any, steps: int, *, out: Spec) -> Value:
    """``steps`` evenly spaced numbers from ``start`` to ``end``."""
    return cast(_spaced(start, end, steps, out), out.dtype)


@lowers(
    aten.logspace.default,
    aten.logspace.Tensor_Tensor,
    aten.logspace.Tensor_Scalar,
    aten.logspace.Scalar_Tensor,
    dtypes=COPYABLE,
    gaps=_NO_NIBBLES,
    ignores=("dtype",),
)
def logspace(start: Any, end: Any, steps: int, base: float = 10.0, *, out: Spec) -> Value:
    """``base`` to the power of ``steps`` evenly spaced numbers from ``start`` to ``end``.

    A single number is computed from the exact exponent, and only the power is rounded to the dtype.
    """
    if steps == 1:
        only = as_value(start, COMPLEX128 if out.dtype in COMPLEX else FLOAT64)
        return cast(hlo.broadcast_to(hlo.power(base, only), out.shape), out.dtype)
    exponent = _spaced(start, end, steps, out)
    return cast(hlo.power(base, exponent), out.dtype)


# Matrices -----------------------------------------------------------------------------------


@lowers(aten.eye.default, aten.eye.m, dtypes=COPYABLE, ignores=("n", "m", "dtype"))
def eye(*, out: Spec) -> Value:
    """Ones on the main diagonal."""
    row, column = (hlo.iota(out.shape, axis, INT64) for axis in range(2))
    return cast(hlo.eq(row, column), out.dtype)
