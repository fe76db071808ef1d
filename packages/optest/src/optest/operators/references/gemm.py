"""References of products of matrices: one formula, ``np.matmul`` in the wide type."""

from __future__ import annotations

import numpy as np

from .wide import Array, Reference, reference


def _product() -> Reference:
    return reference(lambda left, right: np.matmul(left, right))


matmul_reference = _product()
mm_reference = _product()
bmm_reference = _product()
mv_reference = _product()
dot_reference = _product()


@reference
def outer_reference(left: Array, right: Array) -> Array:
    return left[:, None] * right[None, :]


def _scaled(added: Array, product: Array, beta: float, alpha: float) -> Array:
    scaled = alpha * product
    return np.broadcast_to(beta * added, product.shape) + scaled if beta else scaled


@reference
def addmm_reference(added: Array, left: Array, right: Array, *, beta: float, alpha: float) -> Array:
    return _scaled(added, np.matmul(left, right), beta, alpha)


@reference
def baddbmm_reference(added: Array, left: Array, right: Array, *, beta: float, alpha: float) -> Array:
    return _scaled(added, np.matmul(left, right), beta, alpha)


@reference
def gemm_reference(
    left: Array,
    right: Array,
    added: Array,
    *,
    transpose_a: bool,
    transpose_b: bool,
    alpha: float,
    beta: float,
) -> Array:
    product = np.matmul(left.T if transpose_a else left, right.T if transpose_b else right)
    return _scaled(added, product, beta, alpha)


@reference
def linear_reference(values: Array, weight: Array, bias: Array) -> Array:
    return np.matmul(values, weight.T) + bias


@reference
def bilinear_reference(left: Array, right: Array, weight: Array, bias: Array) -> Array:
    products = left[..., None, :, None] * weight * right[..., None, None, :]
    return products.sum(axis=(-2, -1)) + bias
