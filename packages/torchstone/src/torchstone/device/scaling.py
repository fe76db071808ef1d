"""The operators that ``torch.amp.GradScaler`` needs: unscaling gradients, and updating the scale."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

Tensor = torch.Tensor


def unscale(self: Sequence[Tensor], found_inf: Tensor, inv_scale: Tensor) -> None:
    """Multiply each tensor by ``inv_scale``; ``found_inf`` becomes 1 if an element is not finite."""
    for one in self:
        found_inf.copy_(torch.maximum(found_inf, (~torch.isfinite(one)).any().to(found_inf.dtype)))
        one.mul_(inv_scale.to(one.dtype) if one.dtype is torch.float64 else inv_scale)


def update_scale(
    self: Tensor,
    growth_tracker: Tensor,
    found_inf: Tensor,
    scale_growth_factor: float,
    scale_backoff_factor: float,
    growth_interval: int,
) -> Tensor:
    """Reduce the scale ``self`` after a step that is not finite; raise it after enough finite steps.

    The number of finite steps is ``growth_interval``.
    """
    failed = found_inf != 0
    successes = growth_tracker + 1
    grows = successes == growth_interval
    grown = self * scale_growth_factor
    grown = torch.where(torch.isfinite(grown) & grows, grown, self)
    self.copy_(torch.where(failed, self * scale_backoff_factor, grown))
    growth_tracker.copy_(torch.where(failed | grows, torch.zeros_like(successes), successes))
    return self


KERNELS: dict[str, Callable[..., Any]] = {
    "_amp_foreach_non_finite_check_and_unscale_": unscale,
    "_amp_update_scale_": update_scale,
}
