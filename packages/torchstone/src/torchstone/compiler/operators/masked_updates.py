"""``index_put`` with a mask and ``index_fill``, in a form whose derivatives have static shapes.

PyTorch's derivative with respect to the written values uses ``gradient[mask]`` or
``unique(index)``, whose sizes depend on values. Here all places are computed, and a mask selects
among them. A function returns ``NotImplemented`` if PyTorch's own derivative works, or if
PyTorch should raise the error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...lowering.conditions import shape_mismatch
from ...torch_internals.dispatch import call_compiled
from ...torch_internals.operators import OpOverload, namespace, schema_of
from ..assertions import require
from . import expanded_writes
from .declaring import AUTOGRAD, declare

aten = namespace("aten")

Tensor = torch.Tensor


def index_put(
    self: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False
) -> Tensor:
    """Return ``self`` after ``self[…, mask] = values`` (``+=`` if ``accumulate``), a mask over any axes."""
    given = [(axis, index) for axis, index in enumerate(indices) if index is not None]
    if not values.requires_grad or values.dtype != self.dtype or len(given) != 1:
        return NotImplemented
    [(axis, mask)] = given
    stop = axis + mask.ndim
    rest = self.ndim - stop
    place = values.ndim - rest - 1  # the axis of ``values`` for the places that the mask selects
    if mask.dtype not in (torch.bool, torch.uint8) or not mask.ndim or mask.shape != self.shape[axis:stop]:
        return NotImplemented
    if place >= 0 and not values.shape[place]:
        return NotImplemented
    held = mask.to(torch.bool)
    if place >= 0 and values.shape[place] != 1:
        require(lambda: held.sum() == values.shape[place], shape_mismatch(values))
    new = values if place < 0 else _spread(values, held, place)
    return torch.where(held.reshape(mask.shape + (1,) * rest), self + new if accumulate else new, self)


def _spread(values: Tensor, mask: Tensor, place: int) -> Tensor:
    """Replace axis ``place`` of ``values``, which has the selected places, by all axes of the mask.

    A single element is used for all places. Where the mask is False, the result is not used.
    """
    ordinal = mask.flatten().cumsum(0) - 1
    spread = values.index_select(place, ordinal.clamp(0, values.shape[place] - 1))
    return spread.unflatten(place, mask.shape)


def index_fill(self: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """Return ``self`` with the value of a 0-d tensor at the positions ``index`` along ``dim``."""
    if not isinstance(value, Tensor) or value.ndim or not value.requires_grad or index.ndim > 1:
        return NotImplemented
    line = torch.zeros(self.shape[dim] if self.ndim else 1, dtype=torch.bool)
    held = line.index_fill(0, index, True)
    shape = [1] * self.ndim
    if shape:
        shape[dim] = -1
    return torch.where(held.reshape(shape), value.to(self.dtype), self)


def _stand_in(
    overload: OpOverload, form: Callable[..., Tensor], expanded: Callable[..., None] | None = None
) -> None:
    """Trace ``form``, whose derivative can be traced; if it returns ``NotImplemented``, PyTorch's kernel.

    ``expanded`` writes into expanded tensors. If it is given, all traces use this kernel.
    """

    def kernel(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        result = form(self, *args, **kwargs)
        if result is not NotImplemented:
            return self.copy_(result) if schema_of(overload).is_mutable else result
        own: Tensor = call_compiled(overload, AUTOGRAD, self, *args, **kwargs)
        return own

    if expanded is None:
        declare(overload, stand_in={AUTOGRAD: kernel})
    else:
        whole = {AUTOGRAD: expanded_writes.written_once(overload, expanded, kernel)}
        declare(overload, stand_in=whole, mended=lambda: whole)


_stand_in(aten.index_put.default, index_put)
_stand_in(aten.index_put_.default, index_put)
_stand_in(aten.index_fill.int_Tensor, index_fill)
_stand_in(aten.index_fill_.int_Tensor, index_fill, expanded_writes.index_fill)
