"""Running sums, products, extremes and differences along axis 1."""

from __future__ import annotations

import torch

from .example import Example, model

SHAPE = (3, 8)


@model
def cumsum() -> Example:
    """Cumulative sum/product along dim 1"""
    return Example(lambda x: x.cumsum(1), (torch.randn(SHAPE),))


@model
def cumprod() -> Example:
    """Cumulative sum/product along dim 1"""
    return Example(lambda x: x.cumprod(1), (torch.randn(SHAPE),))


@model
def cummax() -> Example:
    """Cumulative max/min (returns values)"""
    return Example(lambda x: x.cummax(1).values, (torch.randn(SHAPE),))


@model
def cummin() -> Example:
    """Cumulative max/min (returns values)"""
    return Example(lambda x: x.cummin(1).values, (torch.randn(SHAPE),))


@model
def logcumsumexp() -> Example:
    """Numerically stable log-sum-exp scan"""
    return Example(lambda x: x.logcumsumexp(1), (torch.randn(SHAPE),))


@model
def diff() -> Example:
    """First/second-order discrete difference"""
    return Example(lambda x: x.diff(dim=1), (torch.randn(SHAPE),))


@model
def diff_n2() -> Example:
    """First/second-order discrete difference"""
    return Example(lambda x: x.diff(n=2, dim=1), (torch.randn(SHAPE),))
