"""Writes into expanded tensors, in which several elements share one place in memory.

Eager PyTorch allows some of them: ``x.expand(2, 3).zero_()`` sets ``x`` to 0. PyTorch's functional form of
such a write adds up the changes of all elements, so that ``x`` becomes ``-x``. Here, each place is written
once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...torch_internals.dispatch import call_compiled
from ...torch_internals.operators import OpOverload, namespace
from ...torch_internals.symbols import is_known
from .declaring import AUTOGRAD, declare

aten = namespace("aten")

Tensor = torch.Tensor


def repeated_axes(x: Tensor) -> list[int]:
    """Return the axes along which all elements of a tensor are the same place in memory."""
    return [
        axis
        for axis, (size, stride) in enumerate(zip(x.shape, x.stride(), strict=True))
        if is_known(stride == 0) and not is_known(size <= 1)
    ]


def once(x: Tensor, axes: list[int]) -> Tensor:
    """Return a view of ``x`` with only the first element along each of the ``axes``."""
    for axis in axes:
        x = aten.slice.Tensor(x, axis, 0, 1)
    return x


def _fill(x: Tensor, axes: list[int], overload: OpOverload, *values: Any) -> None:
    overload(once(x, axes), *values)


def _masked_fill(x: Tensor, axes: list[int], overload: OpOverload, mask: Tensor, value: Any) -> None:
    """Fill each place in memory for which the mask selects at least one element."""
    held = mask.expand(x.shape)
    for axis in axes:
        held = held.any(axis, keepdim=True)
    overload(once(x, axes), held, value)


def index_fill(x: Tensor, axes: list[int], overload: OpOverload, dim: int, index: Tensor, value: Any) -> None:
    """Fill by index. Along a repeated axis, any index fills all places, and an empty index fills none."""
    if dim % x.ndim in axes:
        index = torch.zeros_like(index)  # every index is the same place as index 0
    overload(once(x, axes), dim, index, value)


def written_once(
    overload: OpOverload, write: Callable[..., None], otherwise: Callable[..., Tensor]
) -> Callable[..., Tensor]:
    """Return a kernel that calls ``write`` if its tensor is expanded, and ``otherwise`` if it is not."""

    def kernel(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        axes = repeated_axes(self)
        if not axes:
            return otherwise(self, *args, **kwargs)
        write(self, axes, overload, *args, **kwargs)
        return self

    return kernel


def _declare(overload: OpOverload, write: Callable[..., None]) -> None:
    def compiled(*args: Any, **kwargs: Any) -> Tensor:
        result: Tensor = call_compiled(overload, AUTOGRAD, *args, **kwargs)
        return result

    declare(overload, mended=lambda: {AUTOGRAD: written_once(overload, write, compiled)})


def _foreach_zero(tensors: Sequence[Tensor]) -> None:
    if any(repeated_axes(one) for one in tensors):
        for one in tensors:
            one.zero_()
    else:
        call_compiled(aten._foreach_zero_.default, AUTOGRAD, tensors)


declare(aten._foreach_zero_.default, mended=lambda: {AUTOGRAD: _foreach_zero})
for _overload, _write in {
    aten.zero_.default: _fill,
    aten.fill_.Scalar: _fill,
    aten.fill_.Tensor: _fill,
    aten.masked_fill_.Scalar: _masked_fill,
    aten.masked_fill_.Tensor: _masked_fill,
    aten.index_fill_.int_Scalar: index_fill,
}.items():
    _declare(_overload, _write)
