"""Shape rules for symbolic sizes, of operators that PyTorch can trace with numbers alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch

from ...torch_internals.operators import OpOverload, namespace
from .declaring import declare

aten = namespace("aten")

Tensor = torch.Tensor


def _declare(shapes: Callable[..., Any], *overloads: Any) -> None:
    """``shapes`` makes empty results; it is asked where a tensor has symbolic sizes."""

    @wraps(shapes)
    def rule(mode: Any, _: OpOverload, *given: Any, **named: Any) -> Any:
        sizes = [size for one in given if isinstance(one, Tensor) for size in one.shape]
        if not any(isinstance(size, torch.SymInt) for size in sizes):
            return NotImplemented
        with mode:
            return shapes(*given, **named)

    declare(*overloads, shapes=rule)


def _with_mask(self: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
    return torch.empty_like(self), torch.empty_like(self, dtype=torch.bool)


def _elementwise(grad: Tensor, self: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(grad + self)


def _factors(self: Tensor) -> tuple[Tensor, Tensor]:
    """Columns lie one after the other, as LAPACK has them."""
    *batch, rows, columns = self.shape
    return torch.empty_like(self.mT.contiguous()).mT, self.new_empty([*batch, torch.sym_min(rows, columns)])


def _counts(self: Tensor, bins: int | Tensor, **_: Any) -> tuple[Tensor, Tensor]:
    if isinstance(bins, Tensor):
        return self.new_empty([bins.shape[0] - 1]), bins.new_empty(bins.shape)
    return self.new_empty([bins]), self.new_empty([bins + 1])


_declare(
    _with_mask,
    aten.fake_quantize_per_tensor_affine_cachemask.default,
    aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default,
    aten.fake_quantize_per_channel_affine_cachemask.default,
)
_declare(_elementwise, aten.hardshrink_backward.default, aten.softshrink_backward.default)
_declare(_factors, aten.geqrf.default)
_declare(_counts, aten.histogram.bin_ct, aten.histogram.bins_tensor)
