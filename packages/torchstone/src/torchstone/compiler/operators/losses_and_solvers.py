"""Losses and ``linalg_lstsq``: shape rules that PyTorch lacks, and an expansion that it can trace.

PyTorch's rule for ``cross_entropy_loss`` asks whether there are elements, which is unknown for ``x[mask]``.
With a dynamic number of rows, it takes the reduction for ``size_average`` and ignores ``reduction="none"``.
The width of ``_ctc_loss``'s second result depends on the values of lengths; the rule here uses a bound that
follows from shapes. Whether ``linalg_lstsq`` returns residuals depends on the rank; here it is full.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ...torch_internals.fake import PartialRule
from ...torch_internals.operators import OpOverload, namespace
from .declaring import AUTOGRAD, COMPOSITE, declare

aten = namespace("aten")

Tensor = torch.Tensor


def _of_symbolic_rows(self: Tensor, target: Tensor, *rest: Any, **named: Any) -> bool:
    """Whether ``self`` has symbolic sizes, and ``target`` gives a class index for each of its rows."""
    symbolic = any(isinstance(size, torch.SymInt) for size in self.shape)
    rows = [*self.shape[:1], *self.shape[2:]]
    return symbolic and not target.is_floating_point() and str(rows) == str([*target.shape])


def _cross_entropy_shapes(
    mode: Any,
    _: OpOverload,
    self: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: int = 1,
    *rest: Any,
    **named: Any,
) -> Tensor:
    with mode:
        return self.new_empty([] if reduction else target.shape)


def _ctc_loss_shapes(
    mode: Any,
    _: OpOverload,
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    *rest: Any,
) -> tuple[Tensor, Tensor]:
    if isinstance(target_lengths, Tensor):
        longest = targets.shape[-1]
    else:
        longest = max(target_lengths, default=0)
    time, batch = log_probs.shape[:2]
    with mode:
        return log_probs.new_empty((batch,)), log_probs.new_empty((batch, time, 2 * longest + 1))


def _ctc_loss_of_lists(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Sequence[int],
    target_lengths: Sequence[int],
    blank: int = 0,
    reduction: int = 1,
    zero_infinity: bool = False,
) -> Tensor:
    """Compute ``aten.ctc_loss.IntList`` in traceable operators; ATen's expansion reads its inputs' memory."""
    batched = log_probs if log_probs.ndim == 3 else log_probs.unsqueeze(1)
    targets = targets if log_probs.ndim == 3 else targets.unsqueeze(0)
    losses = aten._ctc_loss(batched, targets, input_lengths, target_lengths, blank, zero_infinity)[0]
    if zero_infinity:
        losses = torch.where(losses == float("inf"), 0.0, losses)
    if reduction == 0:
        return losses if log_probs.ndim == 3 else losses.squeeze(0)
    if reduction == 2:
        return losses.sum()
    # Not torch.tensor: export rejects constants that an expansion creates.
    sizes = [losses.new_full((1,), max(length, 1)) for length in target_lengths]
    return (losses / torch.cat(sizes)).mean()


def _lstsq_shapes(
    mode: Any,
    overload: OpOverload,
    self: Tensor,
    b: Tensor,
    rcond: float | None = None,
    *,
    driver: str | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return empty results for a matrix of full rank, as PyTorch returns residuals depending on the rank.

    For full rank, there are residuals if there are more rows than columns, unless the driver is gelsy (the
    default).
    See aten/src/ATen/native/BatchLinearAlgebra.cpp.
    """
    vector = b.ndim == self.ndim - 1 and b.shape == self.shape[:-1]
    known = driver in (None, "gels", "gelsy", "gelsd", "gelss") and self.dtype == b.dtype
    fits = self.ndim > 1 and (vector or (b.ndim == self.ndim and b.shape[-2] == self.shape[-2]))
    if not known or not fits:  # PyTorch raises its own error
        aten.linalg_lstsq(*(torch.zeros(x.shape, dtype=x.dtype) for x in (self, b)), rcond, driver=driver)
    own, (m, n), columns = self.shape[:-2], self.shape[-2:], 1 if vector else b.shape[-1]
    lead = own if vector else torch.broadcast_shapes(own, b.shape[:-2])
    revealing = driver in ("gelsd", "gelss")
    real = self.abs().dtype
    with mode:
        return (
            self.new_empty((*lead, n) if vector else (*lead, n, columns)),
            self.new_empty((*lead, columns) if m > n and driver not in (None, "gelsy") else (0,), dtype=real),
            self.new_empty((0,) if driver == "gels" else own, dtype=torch.int64),
            self.new_empty((*own, min(m, n)) if revealing else (0,), dtype=real),
        )


declare(
    aten.cross_entropy_loss.default,
    shapes=PartialRule(_of_symbolic_rows, _cross_entropy_shapes),
)
declare(aten._ctc_loss.default, aten._ctc_loss.Tensor, shapes=_ctc_loss_shapes)
declare(aten.linalg_lstsq.default, shapes=_lstsq_shapes)
declare(
    aten.ctc_loss.IntList,
    mended=lambda: dict.fromkeys((COMPOSITE, AUTOGRAD), _ctc_loss_of_lists),
)
