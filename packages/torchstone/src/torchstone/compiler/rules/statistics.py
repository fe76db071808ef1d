"""Capture rules for functions of dense tensors whose code reads values: statistics, combinations.

Functions whose result size only seems to depend on values are here, too.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch

from ..operators import statistics
from .registry import capture_rule

Tensor = torch.Tensor


capture_rule(torch.cov, torch.Tensor.cov)(statistics.cov)
capture_rule(torch.corrcoef, torch.Tensor.corrcoef)(statistics.corrcoef)


@capture_rule(torch.quantile, torch.Tensor.quantile, torch.nanquantile, torch.Tensor.nanquantile)
def quantile(input: Tensor, q: Tensor | float, *rest: Any, **options: Any) -> Any:
    """Check ``q`` with an assertion, then call PyTorch's function, which does not check ``q`` in a trace."""
    if isinstance(q, Tensor):
        statistics.require_quantiles(q)
    return NotImplemented


@capture_rule(torch.combinations, in_dynamo=True)
def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """Return all r-tuples of a vector's elements, whose number follows from the length of the vector."""
    if not r:
        return input.new_empty(0)
    count = input.shape[0] + (r - 1 if with_replacement else 0)
    places = torch.tensor(list(itertools.combinations(range(count), r)), dtype=torch.int64).reshape(-1, r)
    return input[places - torch.arange(r) if with_replacement else places]
