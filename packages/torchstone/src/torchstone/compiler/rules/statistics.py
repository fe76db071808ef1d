"""Capture rules for functions of dense tensors whose own code looks at values: covariance, combinations.

PyTorch checks weights on values before it computes, which no program can; the formulas do
without. Results whose size only seems to depend on values are here too.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch

from .registry import capture_rule

Tensor = torch.Tensor


@capture_rule(torch.cov, torch.Tensor.cov)
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
    factor = torch.as_tensor(total - reduced).clamp(min=0)
    products = centred @ (centred if weights is None else centred * weights).mT.conj()
    return torch.true_divide(products, factor).squeeze()


@capture_rule(torch.corrcoef, torch.Tensor.corrcoef)
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


@capture_rule(torch.combinations)
def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """All r-tuples of a vector's elements: how many there are follows from its length."""
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    if not r:
        return input.new_empty(0)
    places = torch.tensor(list(choose(range(input.shape[0]), r)), dtype=torch.int64)
    return input[places.reshape(-1, r)]
