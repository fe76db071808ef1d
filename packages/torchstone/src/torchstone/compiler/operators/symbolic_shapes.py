"""Shape rules with symbolic sizes for operators that PyTorch can trace only with plain numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ...torch_internals.operators import namespace
from .declaring import declare_symbolic_shapes

aten = namespace("aten")

Tensor = torch.Tensor


def _with_mask(self: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
    return torch.empty_like(self), torch.empty_like(self, dtype=torch.bool)


def _elementwise(grad: Tensor, self: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(grad + self)


def _factors(self: Tensor) -> tuple[Tensor, Tensor]:
    """Return the results of ``geqrf``, whose matrix lies in memory column by column, as in LAPACK."""
    *batch, rows, columns = self.shape
    return torch.empty_like(self.mT.contiguous()).mT, self.new_empty([*batch, torch.sym_min(rows, columns)])


def _counts(self: Tensor, bins: int | Tensor, **_: Any) -> tuple[Tensor, Tensor]:
    if isinstance(bins, Tensor):
        return self.new_empty([bins.shape[0] - 1]), bins.new_empty(bins.shape)
    return self.new_empty([bins]), self.new_empty([bins + 1])


def _as_first(x: Tensor, *_: Any, **__: Any) -> Tensor:
    return torch.empty_like(x)


def _as_second(_: Tensor, x: Tensor, *__: Any, **___: Any) -> Tensor:
    return torch.empty_like(x)


def _bin_edges(self: Tensor, bins: Sequence[int], **_: Any) -> list[Tensor]:
    return [self.new_empty([count + 1]) for count in bins]


def _counts_of_bins(self: Tensor, bins: Sequence[int | Tensor], **_: Any) -> Tensor:
    return self.new_empty([one.shape[0] - 1 if isinstance(one, Tensor) else one for one in bins])


declare_symbolic_shapes(
    aten.fake_quantize_per_tensor_affine_cachemask.default,
    aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default,
    aten.fake_quantize_per_channel_affine_cachemask.default,
    shapes=_with_mask,
)
declare_symbolic_shapes(
    aten.hardshrink_backward.default, aten.softshrink_backward.default, shapes=_elementwise
)
declare_symbolic_shapes(aten.geqrf.default, shapes=_factors)
declare_symbolic_shapes(aten.histogram.bin_ct, aten.histogram.bins_tensor, shapes=_counts)
declare_symbolic_shapes(aten._masked_softmax.default, aten._masked_softmax_backward.default, shapes=_as_first)
declare_symbolic_shapes(
    aten.multi_margin_loss_backward.default,
    aten.multilabel_margin_loss_backward.default,
    aten.fractional_max_pool3d_backward.default,
    aten._ctc_loss_backward.default,
    aten._ctc_loss_backward.Tensor,
    shapes=_as_second,
)
declare_symbolic_shapes(aten._histogramdd_bin_edges.default, shapes=_bin_edges)
declare_symbolic_shapes(
    aten._histogramdd_from_bin_cts.default,
    aten._histogramdd_from_bin_tensors.default,
    shapes=_counts_of_bins,
)
