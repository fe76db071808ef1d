"""Covariances and correlations without the checks of values that PyTorch's own code makes.

PyTorch looks at weights before it computes, which no program can; the formulas do without.
"""

from __future__ import annotations

from typing import Any

import torch

aten = torch.ops.aten

Tensor = torch.Tensor


def cov(
    input: Tensor, *, correction: int = 1, fweights: Tensor | None = None, aweights: Tensor | None = None
) -> Tensor:
    """The covariance of rows, as ATen computes it (aten/src/ATen/native/Correlation.cpp)."""
    rows = input.reshape(1, -1) if input.ndim < 2 else input
    weights = fweights
    if aweights is not None:
        weights = aweights if weights is None else weights * aweights
    total: Any = rows.shape[1] if weights is None else weights.sum()
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
    """Correlations of rows: covariances over deviations, clipped to [-1, 1]."""
    covariance = cov(input)
    if not covariance.ndim:
        return covariance / covariance
    variances = covariance.diagonal()
    deviations = (variances.real if variances.is_complex() else variances).sqrt()
    found = covariance / deviations.unsqueeze(1) / deviations
    if found.is_complex():
        return torch.complex(found.real.clamp(-1, 1), found.imag.clamp(-1, 1))
    return found.clamp(-1, 1)


EXPANSIONS = {aten.cov.default: cov, aten.corrcoef.default: corrcoef}
"""ATen's composite operators → what they expand to."""
