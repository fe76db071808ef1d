"""StableHLO operations written in terms of simpler ones, for engines that lack them.

Each public function except :func:`lowered` computes the same as the StableHLO operation of its name, and
takes that operation's attributes. JAX traces it (see :func:`lowered`). Not here: which engine needs which
(:mod:`._iree_programs`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy
from jax import lax
from jax import numpy as jnp


def lowered(function: Callable[..., Any], operands: Sequence[tuple[Sequence[int], numpy.dtype[Any]]]) -> str:
    """Return the text of the StableHLO module of ``function`` for operands of these shapes and dtypes."""
    with jax.enable_x64(True):
        structs = [jax.ShapeDtypeStruct(tuple(shape), dtype) for shape, dtype in operands]
        return str(jax.jit(function).lower(*structs).compiler_ir("stablehlo"))


def cholesky(a: Any, *, lower: bool) -> Any:
    """Return the Cholesky factor of ``(..., n, n)``, column by column; NaN if it is not positive definite."""
    if not lower:
        return _adjoint(cholesky(_adjoint(a), lower=True))
    rows = lax.broadcasted_iota(numpy.int32, (*a.shape[:-1], 1), a.ndim - 2)

    def column(j: Any, factor: Any) -> Any:
        done = lax.dynamic_slice_in_dim(factor, j, 1, axis=-2)
        rest = lax.dynamic_slice_in_dim(a, j, 1, axis=-1)
        rest -= jnp.sum(factor * done.conj(), axis=-1, keepdims=True)
        pivot = jnp.sqrt(lax.dynamic_slice_in_dim(rest, j, 1, axis=-2).real)
        return lax.dynamic_update_slice_in_dim(factor, jnp.where(rows >= j, rest / pivot, 0), j, axis=-1)

    return lax.fori_loop(0, a.shape[-1], column, jnp.zeros_like(a))


def triangular_solve(
    a: Any, b: Any, *, left_side: bool, lower: bool, unit_diagonal: bool, transpose_a: str
) -> Any:
    """Solve ``op(a) x = b`` (or ``x op(a) = b``) for ``x``, row by row.

    ``transpose_a`` is ``"NO_TRANSPOSE"``, ``"TRANSPOSE"`` or ``"ADJOINT"``, as in StableHLO.
    """
    if transpose_a != "NO_TRANSPOSE":
        a, lower = (_adjoint(a) if transpose_a == "ADJOINT" else jnp.swapaxes(a, -1, -2)), not lower
    if not left_side:
        a, b, lower = jnp.swapaxes(a, -1, -2), jnp.swapaxes(b, -1, -2), not lower
    size = a.shape[-1]
    row, column = (lax.broadcasted_iota(numpy.int32, a.shape, a.ndim - axis) for axis in (2, 1))
    beside = jnp.where(row > column if lower else row < column, a, 0)
    diagonal = jnp.sum(jnp.where(row == column, a, 0), axis=-1, keepdims=True)

    def solve(step: Any, x: Any) -> Any:
        i = step if lower else size - 1 - step
        known = jnp.swapaxes(lax.dynamic_slice_in_dim(beside, i, 1, axis=-2), -1, -2)
        value = lax.dynamic_slice_in_dim(b, i, 1, axis=-2) - jnp.sum(known * x, axis=-2, keepdims=True)
        if not unit_diagonal:
            value /= lax.dynamic_slice_in_dim(diagonal, i, 1, axis=-2)
        return lax.dynamic_update_slice_in_dim(x, value, i, axis=-2)

    x = lax.fori_loop(0, size, solve, jnp.zeros_like(b))
    return x if left_side else jnp.swapaxes(x, -1, -2)


def fft(x: Any, *, kind: str, lengths: Sequence[int]) -> Any:
    """Compute discrete Fourier transforms over the last axes as matrix products: no fast algorithm."""
    last, others = x.ndim - 1, range(x.ndim - len(lengths), x.ndim - 1)
    if kind == "IRFFT":
        for axis in others:
            x = _transform(x, axis, inverse=True)
        return _real_inverse(x, lengths[-1])
    x = _transform(x, last, inverse=kind == "IFFT")
    if kind == "RFFT":
        x = x[..., : lengths[-1] // 2 + 1]
    for axis in others:
        x = _transform(x, axis, inverse=kind == "IFFT")
    return x


def _transform(x: Any, axis: int, *, inverse: bool) -> Any:
    size = x.shape[axis]
    cosine, sine = _waves(size, size, x.real.dtype)
    moved = jnp.moveaxis(x, axis, -1)
    real, imaginary = moved.real, moved.imag
    if inverse:
        cosine, sine = cosine / size, -sine / size
    product = _product(real, cosine) + _product(imaginary, sine)
    other = _product(imaginary, cosine) - _product(real, sine)
    return jnp.moveaxis(lax.complex(product, other), -1, axis)


def _real_inverse(x: Any, size: int) -> Any:
    """Return the real signal of length ``size`` whose spectrum has ``x`` as its first half.

    Each element of ``x`` except the two ends stands for two terms of the spectrum.
    """
    cosine, sine = _waves(x.shape[-1], size, x.real.dtype)
    place = numpy.arange(x.shape[-1])
    weight = jnp.asarray(numpy.where((place == 0) | (place * 2 == size), 1, 2) / size, cosine.dtype)
    return _product(x.real * weight, cosine) - _product(x.imag * weight, sine)


def _waves(rows: int, size: int, dtype: Any) -> tuple[Any, Any]:
    """Return constants with the cosine and the sine of ``2 π j k / size`` in row ``j``, column ``k``."""
    j, k = numpy.indices((rows, size))
    angle = j * k % size * (2 * numpy.pi / size)
    return jnp.asarray(numpy.cos(angle), dtype), jnp.asarray(numpy.sin(angle), dtype)


def _product(a: Any, b: Any) -> Any:
    return jnp.matmul(a, b, precision=lax.Precision.HIGHEST)


def _adjoint(a: Any) -> Any:
    return jnp.swapaxes(a, -1, -2).conj()
