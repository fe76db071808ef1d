"""References of the elementwise functions of one tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import special

from .wide import Array, Reference, by_numpy, is_float, reference


def _by_scipy(function: Callable[[Array], Array]) -> Reference:
    """Return a reference that computes in float64, the widest type of SciPy's functions."""
    return reference(lambda values: function(values.astype(np.float64)))


abs_reference = by_numpy(np.abs)
neg_reference = by_numpy(np.negative)
ceil_reference = by_numpy(np.ceil)
floor_reference = by_numpy(np.floor)
trunc_reference = by_numpy(np.trunc)
square_reference = by_numpy(np.square)
reciprocal_reference = by_numpy(np.reciprocal)
sqrt_reference = by_numpy(np.sqrt)
rsqrt_reference = by_numpy(lambda values: 1 / np.sqrt(values))
exp_reference = by_numpy(np.exp)
exp2_reference = by_numpy(np.exp2)
expm1_reference = by_numpy(np.expm1)
log_reference = by_numpy(np.log)
log2_reference = by_numpy(np.log2)
log10_reference = by_numpy(np.log10)
log1p_reference = by_numpy(np.log1p)
sin_reference = by_numpy(np.sin)
cos_reference = by_numpy(np.cos)
tan_reference = by_numpy(np.tan)
asin_reference = by_numpy(np.arcsin)
acos_reference = by_numpy(np.arccos)
atan_reference = by_numpy(np.arctan)
sinh_reference = by_numpy(np.sinh)
cosh_reference = by_numpy(np.cosh)
asinh_reference = by_numpy(np.arcsinh)
acosh_reference = by_numpy(np.arccosh)
atanh_reference = by_numpy(np.arctanh)
erf_reference = _by_scipy(special.erf)
erfc_reference = _by_scipy(special.erfc)
digamma_reference = _by_scipy(special.psi)
logical_not_reference = by_numpy(np.logical_not)
bitwise_not_reference = by_numpy(np.invert)


@reference
def sign_reference(values: Array) -> Array:
    """Return the sign; it is 0 for NaN, as in PyTorch (c10/util/math: ``(0 < x) - (x < 0)``)."""
    return np.where(np.isnan(values), 0, np.sign(values)) if is_float(values) else np.sign(values)


@reference
def lgamma_reference(values: Array) -> Array:
    """Correct SciPy's function, which is −inf at −inf (C and PyTorch: +inf) and inf for subnormals."""
    found = special.gammaln(values.astype(np.float64))
    found = np.where((np.abs(values) < 1e-300) & (values != 0), -np.log(np.abs(values)), found)
    return np.where(values == -np.inf, np.inf, found)


@reference
def frac_reference(values: Array) -> Array:
    return values - np.trunc(values)


@reference
def round_reference(values: Array, *, decimals: int) -> Array:
    scale = values.dtype.type(10) ** abs(decimals)
    return np.rint(values * scale) / scale if decimals >= 0 else np.rint(values / scale) * scale


def nan_to_num_reference(inputs: tuple[Array, ...], attributes: Any) -> tuple[Array, ...]:
    """Take the limits from the input's own dtype, before the input is widened."""
    from ml_dtypes import finfo

    limit = finfo(inputs[0].dtype)
    high = float(limit.max) if attributes["posinf"] is None else attributes["posinf"]
    low = float(limit.min) if attributes["neginf"] is None else attributes["neginf"]
    return _replace(inputs, {"nan": attributes["nan"] or 0.0, "high": high, "low": low})


@reference
def _replace(values: Array, *, nan: float, high: float, low: float) -> Array:
    found = np.where(np.isnan(values), nan, values)
    return np.where(found == np.inf, high, np.where(found == -np.inf, low, found))


@reference
def cast_reference(values: Array, *, dtype: str) -> Array:
    """Return wide values, truncated to int64 for integer dtypes, and bools for bool."""
    if dtype == "bool":
        return values != 0
    if "int" in dtype:
        return np.trunc(values.real).astype(np.int64)
    return values if dtype.startswith("complex") else values.real
