"""What PyTorch lacks to trace some operators: shape rules, and stand-ins for what it would unroll.

:func:`standing_in` makes PyTorch trace recurrent networks as the operators of
``lowering.recurrent_operators``, covariances without their checks of values, and writes
under a mask as ``lowering.masked_updates``.
``_ctc_loss`` gets a shape rule (the width of its second result depends on the
values of lengths, and is bounded by a shape here), and ``ctc_loss`` of Python
lengths an expansion that reads no memory. ``linalg_lstsq`` gets one for matrices of full rank.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch._subclasses.fake_impls import op_implementations_dict, register_op_impl

from ..torch_internals.operators import OpOverload
from . import masked_updates, statistics
from .recurrent_operators import STAND_INS, expansion

aten = torch.ops.aten

_EXPANSION = torch._C.DispatchKey.CompositeImplicitAutograd
_AUTOGRAD = torch._C.DispatchKey.Autograd

Tensor = torch.Tensor


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
    """``aten.ctc_loss.IntList`` in terms of what can be traced (ATen's own reads its inputs' memory)."""
    batched = log_probs if log_probs.ndim == 3 else log_probs.unsqueeze(1)
    targets = targets if log_probs.ndim == 3 else targets.unsqueeze(0)
    losses = aten._ctc_loss(batched, targets, input_lengths, target_lengths, blank, zero_infinity)[0]
    if zero_infinity:
        losses = torch.where(losses == float("inf"), 0.0, losses)
    if reduction == 0:
        return losses if log_probs.ndim == 3 else losses.squeeze(0)
    if reduction == 2:
        return losses.sum()
    # Not torch.tensor: export wants no constants from inside an expansion.
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
    """Of residuals, whether PyTorch gives any depends on the rank: here it does if there are more rows.

    By aten/src/ATen/native/BatchLinearAlgebra.cpp.
    """
    vector = b.ndim == self.ndim - 1 and b.shape == self.shape[:-1]
    known = driver in (None, "gels", "gelsy", "gelsd", "gelss") and self.dtype == b.dtype
    fits = self.ndim > 1 and (vector or (b.ndim == self.ndim and b.shape[-2] == self.shape[-2]))
    if not known or not fits:  # PyTorch's own error
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


if aten.linalg_lstsq.default not in op_implementations_dict:
    register_op_impl(aten.linalg_lstsq.default)(_lstsq_shapes)
for _loss in (aten._ctc_loss.default, aten._ctc_loss.Tensor):
    if _loss not in op_implementations_dict:
        register_op_impl(_loss)(_ctc_loss_shapes)
for _key in (_EXPANSION, _AUTOGRAD):
    if _key not in aten.ctc_loss.IntList.py_kernels:
        aten.ctc_loss.IntList.py_impl(_key)(_ctc_loss_of_lists)


@contextmanager
def standing_in() -> Iterator[None]:
    """Inside, PyTorch traces stand-ins of operators that it would unroll or could not trace.

    The dispatch tables of the originals are the process's: a trace in another
    thread meets the stand-ins meanwhile, which have the same meaning.
    """
    replaced: dict[OpOverload, tuple[Any, Any]] = {
        **{original: (_EXPANSION, expansion(original)) for original in STAND_INS},
        **{original: (_EXPANSION, function) for original, function in statistics.EXPANSIONS.items()},
        **{original: (_AUTOGRAD, kernel) for original, kernel in masked_updates.KERNELS.items()},
    }
    before = {original: dict(original.py_kernels) for original in replaced}
    for original, (key, function) in replaced.items():
        original.py_kernels[key] = function
        original._dispatch_cache.clear()
    try:
        yield
    finally:
        for original, kernels in before.items():
            original.py_kernels.clear()
            original.py_kernels.update(kernels)
            original._dispatch_cache.clear()
