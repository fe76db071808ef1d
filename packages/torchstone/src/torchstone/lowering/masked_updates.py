"""``index_put`` with a mask and ``index_fill``, in a form whose derivatives have static shapes.

PyTorch's derivative for what is written reads ``gradient[mask]`` or ``unique(index)``, whose
sizes depend on values. Here every place is computed, and chosen by a mask. A function returns
``NotImplemented`` where PyTorch's own derivative will do, and where PyTorch has an error to raise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..torch_internals.dispatch import DispatchKey, call_compiled
from ..torch_internals.operators import OpOverload, namespace, schema_of

aten = namespace("aten")

Tensor = torch.Tensor


def index_put(
    self: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False
) -> Tensor:
    """``self`` after ``self[…, mask] = values`` (``accumulate``: ``+=``), the mask over any of its axes."""
    given = [(axis, index) for axis, index in enumerate(indices) if index is not None]
    if not values.requires_grad or values.dtype != self.dtype or len(given) != 1:
        return NotImplemented
    [(axis, mask)] = given
    stop = axis + mask.ndim
    rest = self.ndim - stop
    place = values.ndim - rest - 1  # the axis of values that counts what the mask chooses
    if mask.dtype not in (torch.bool, torch.uint8) or not mask.ndim or mask.shape != self.shape[axis:stop]:
        return NotImplemented
    if place >= 0 and not values.shape[place]:
        return NotImplemented
    held = mask.to(torch.bool)
    new = values if place < 0 else _spread(values, held, place)
    return torch.where(held.reshape(mask.shape + (1,) * rest), self + new if accumulate else new, self)


def _spread(values: Tensor, mask: Tensor, place: int) -> Tensor:
    """``values`` with its axis ``place``, of what ``mask`` chooses, replaced by all the mask's axes.

    An only element is for all. What the others read where the mask does not hold is of no matter.
    """
    ordinal = mask.flatten().cumsum(0) - 1
    spread = values.index_select(place, ordinal.clamp(0, values.shape[place] - 1))
    return spread.unflatten(place, mask.shape)


def index_fill(self: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """``self`` with a 0-d tensor's value at the positions ``index`` along ``dim``."""
    if not isinstance(value, Tensor) or value.ndim or not value.requires_grad or index.ndim > 1:
        return NotImplemented
    line = torch.zeros(self.shape[dim] if self.ndim else 1, dtype=torch.bool)
    held = line.index_fill(0, index, True)
    shape = [1] * self.ndim
    if shape:
        shape[dim] = -1
    return torch.where(held.reshape(shape), value.to(self.dtype), self)


_FORMS: dict[OpOverload, Callable[..., Tensor]] = {
    aten.index_put.default: index_put,
    aten.index_put_.default: index_put,
    aten.index_fill.int_Tensor: index_fill,
    aten.index_fill_.int_Tensor: index_fill,
}


def _kernel(overload: OpOverload, form: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The form as a kernel with a derivative; PyTorch's own where there is none."""

    def kernel(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        result = form(self, *args, **kwargs)
        if result is not NotImplemented:
            return self.copy_(result) if schema_of(overload).is_mutable else result
        own: Tensor = call_compiled(overload, DispatchKey.Autograd, self, *args, **kwargs)
        return own

    return kernel


KERNELS = {overload: _kernel(overload, form) for overload, form in _FORMS.items()}
"""For the dispatch key ``Autograd``: what PyTorch traces while these stand in for its own."""
