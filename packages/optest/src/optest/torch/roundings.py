"""Runs eager PyTorch with other roundings: Monte Carlo arithmetic.

Every result of an operator is changed at random by up to one rounding of its dtype. The differences between
such runs show the effect of rounding alone (Parker, *Monte Carlo Arithmetic: exploiting randomness in
floating-point arithmetic*, UCLA CSD-970002, 1997). Not here: the verdict that follows from it.
"""

from __future__ import annotations

from typing import Any

import torch

from .internals import TorchDispatchMode, tree_leaves, tree_map_only

Tensor = torch.Tensor


class OtherRoundings(TorchDispatchMode):
    """A mode in which results of operators on floating-point tensors are changed by up to one rounding.

    ``seed`` decides the changes. They include backward passes and in-place updates. Views, and tensors
    that are not strided, keep their values.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(seed)
        self.random: dict[torch.dtype, Tensor] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **kwargs or {})
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        if func.is_view or not any(map(is_rounded, given)):
            return found

        def other(one: Tensor) -> Tensor:
            if not is_rounded(one):
                return one
            return one.copy_(self.moved(one)) if any(one is each for each in given) else self.moved(one)

        return tree_map_only(Tensor, other, found)

    def moved(self, value: Tensor) -> Tensor:
        """Return each element times 1 + ru, rounded: u is the unit roundoff, r is uniform in [-1, 1)."""
        if value.is_complex():
            return torch.view_as_complex(self.moved(torch.view_as_real(value.resolve_conj())))
        if not value.numel():
            return value
        info = torch.finfo(value.dtype)
        moved = torch.addcmul(value, value, self._drawn(value), value=info.eps / 2)
        low, high = torch.aminmax(value)
        if -info.max / 2 < low and high < info.max / 2:
            return moved
        return torch.where(value.abs() < info.max / 2, moved, value)  # infinities, NaN and such stay

    def _drawn(self, like: Tensor) -> Tensor:
        """Return uniform numbers in [-1, 1): a random slice of a longer row that is drawn only once."""
        count, drawn = like.numel(), self.random.get(like.dtype)
        if drawn is None or drawn.numel() < 2 * count:
            drawn = (
                torch.rand(max(2 * count, 1 << 16), generator=self.generator).mul_(2).sub_(1).to(like.dtype)
            )
            self.random[like.dtype] = drawn
        start = int(torch.randint(drawn.numel() - count, (), generator=self.generator))
        return drawn[start : start + count].view(like.shape)


def is_rounded(value: Tensor) -> bool:
    """Whether :meth:`OtherRoundings.moved` can change elements of a tensor."""
    return value.layout is torch.strided and (value.is_floating_point() or value.is_complex())
