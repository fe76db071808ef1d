"""Covariances, correlations and quantiles in a form that PyTorch can trace.

PyTorch checks weights and quantiles before it computes. Here assertions do, if values are checked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...dtypes import scalar_type
from ...torch_internals.dispatch import call_compiled
from ...torch_internals.operators import OpOverload, namespace
from ..assertions import require
from .declaring import COMPOSITE, declare

aten = namespace("aten")

Tensor = torch.Tensor


def cov(
    input: Tensor, *, correction: int = 1, fweights: Tensor | None = None, aweights: Tensor | None = None
) -> Tensor:
    """Return the covariance of rows, as ATen computes it (aten/src/ATen/native/Correlation.cpp).

    Raises the same errors as ATen for shapes and dtypes that do not fit.
    """
    _require_rows("cov", input)
    if input.dtype == torch.bool:
        raise RuntimeError("cov(): bool dtype is not supported for input")
    rows = input.reshape(1, -1) if input.ndim < 2 else input
    _require_weights("fweights", fweights, rows.shape[1], "integral")
    _require_weights("aweights", aweights, rows.shape[1], "floating point")
    weights = fweights
    if aweights is not None:
        weights = aweights if weights is None else weights * aweights
    total: Any = rows.shape[1] if weights is None else weights.sum()
    if weights is not None:
        require(lambda: total != 0, "cov(): weights sum to zero, can't be normalized")
    weighted = rows if weights is None else rows * weights
    centred = rows - (weighted.sum(1) / total).unsqueeze(1)
    reduced: Any = correction
    if aweights is not None and weights is not None and correction:
        reduced = correction * (weights * aweights).sum() / total
    factor: Any = total - reduced
    factor = factor.clamp(min=0) if isinstance(factor, Tensor) else max(factor, 0)
    products = centred @ (centred if weights is None else centred * weights).mT.conj()
    return torch.true_divide(products, factor).squeeze()


def corrcoef(input: Tensor) -> Tensor:
    """Return correlations of rows: covariances divided by standard deviations, clipped to [-1, 1]."""
    _require_rows("corrcoef", input)
    covariance = cov(input)
    if not covariance.ndim:
        return covariance / covariance
    variances = covariance.diagonal()
    deviations = (variances.real if variances.is_complex() else variances).sqrt()
    found = covariance / deviations.unsqueeze(1) / deviations
    if found.is_complex():
        return torch.complex(found.real.clamp(-1, 1), found.imag.clamp(-1, 1))
    return found.clamp(-1, 1)


def _require_rows(name: str, input: Tensor) -> None:
    if input.ndim > 2:
        raise RuntimeError(
            f"{name}(): expected input to have two or fewer dimensions"
            f" but got an input with {input.ndim} dimensions"
        )


def _require_weights(name: str, weights: Tensor | None, observations: int, kind: str) -> None:
    """Raise unless ``weights`` are ``observations`` numbers of the given ``kind`` of dtype."""
    if weights is None:
        return
    if weights.ndim > 1:
        raise RuntimeError(
            f"cov(): expected {name} to have one or fewer dimensions"
            f" but got {name} with {weights.ndim} dimensions"
        )
    fractional = weights.is_floating_point() or weights.is_complex()
    fits = weights.is_floating_point() if kind == "floating point" else not fractional
    if not fits or weights.dtype == torch.bool:
        given = scalar_type(weights.dtype)
        raise RuntimeError(f"cov(): expected {name} to have {kind} dtype but got {name} with {given} dtype")
    if weights.numel() != observations:
        raise RuntimeError(
            f"cov(): expected {name} to have the same numel as there are observations in the input"
            f" but got {weights.numel()} != {observations}"
        )
    require(lambda: weights >= 0, f"cov(): {name} cannot be negative")


def require_quantiles(q: Tensor) -> None:
    require(lambda: (q >= 0) & (q <= 1), "quantile() q values must be in the range [0, 1]")


def _quantile(overload: OpOverload) -> Callable[..., Tensor]:
    """Return PyTorch's expansion and an assertion for ``q``, which it does not check in a trace.

    Exports have a capture rule instead.
    """

    def expansion(self: Tensor, q: Tensor, *rest: Any, **options: Any) -> Tensor:
        if not torch.compiler.is_exporting():
            require_quantiles(q)
        found: Tensor = call_compiled(overload, COMPOSITE, self, q, *rest, **options)
        return found

    return expansion


declare(aten.cov.default, stand_in={COMPOSITE: cov})
declare(aten.corrcoef.default, stand_in={COMPOSITE: corrcoef})
for _overload in (aten.quantile.default, aten.nanquantile.default):
    declare(_overload, stand_in={COMPOSITE: _quantile(_overload)})
