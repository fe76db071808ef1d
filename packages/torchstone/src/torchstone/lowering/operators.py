"""What PyTorch lacks to trace some operators: shape rules, and stand-ins for what it would unroll.

``aten.lstm.input`` and its relatives have no shape rule; PyTorch finds their
shapes by running every time step, in each of several passes. Each gets a
stand-in, ``torchstone::lstm``, with the same schema, a shape rule, and the
original as its CPU kernel. :func:`standing_in` makes PyTorch trace the stand-in.
``_ctc_loss`` gets a shape rule (the width of its second result depends on the
values of lengths, and is bounded by a shape here), and ``ctc_loss`` of Python
lengths an expansion that reads no memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_impls import op_implementations_dict, register_op_impl

aten = torch.ops.aten

_library = torch.library.Library("torchstone", "FRAGMENT")
_EXPANSION = torch._C.DispatchKey.CompositeImplicitAutograd

Tensor = torch.Tensor
Tensors = list[torch.Tensor]


def _outputs(input: Tensor, hidden: Tensor, bidirectional: bool) -> Tensor:
    width = hidden.shape[2] * (2 if bidirectional else 1)
    return input.new_empty((*input.shape[:2], width))


def _lstm_shapes(input: Tensor, hx: Tensors, params: Tensors, *options: Any) -> tuple[Tensor, Tensor, Tensor]:
    return _outputs(input, hx[0], options[4]), torch.empty_like(hx[0]), torch.empty_like(hx[1])


def _shapes(input: Tensor, hx: Tensor, params: Tensors, *options: Any) -> tuple[Tensor, Tensor]:
    return _outputs(input, hx, options[4]), torch.empty_like(hx)


def _stand_in(original: OpOverload, shapes: Callable[..., Any]) -> OpOverload:
    name = original._schema.name.removeprefix("aten::")
    _library.define(str(original._schema).replace(f"aten::{name}.{original._overloadname}", name))
    _library.impl(name, lambda *arguments: original(*arguments), "CPU")
    torch.library.register_fake(f"torchstone::{name}", shapes, lib=_library)
    return getattr(torch.ops.torchstone, name).default


_SHAPES: dict[OpOverload, Callable[..., Any]] = {
    aten.lstm.input: _lstm_shapes,
    aten.gru.input: _shapes,
    aten.rnn_tanh.input: _shapes,
    aten.rnn_relu.input: _shapes,
}
STAND_INS = {original: _stand_in(original, shapes) for original, shapes in _SHAPES.items()}
"""ATen's overload → Torchstone's."""


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


for _loss in (aten._ctc_loss.default, aten._ctc_loss.Tensor):
    if _loss not in op_implementations_dict:
        register_op_impl(_loss)(_ctc_loss_shapes)
for _key in (_EXPANSION, torch._C.DispatchKey.Autograd):
    if _key not in aten.ctc_loss.IntList.py_kernels:
        aten.ctc_loss.IntList.py_impl(_key)(_ctc_loss_of_lists)


@contextmanager
def standing_in() -> Iterator[None]:
    """Inside, PyTorch expands the originals to their stand-ins instead of to their time steps.

    The dispatch tables of the originals are the process's: a trace in another
    thread meets the stand-ins meanwhile, which have the same meaning.
    """
    before = {original: dict(original.py_kernels) for original in STAND_INS}
    for original, own in STAND_INS.items():
        original.py_kernels[_EXPANSION] = own
        original._dispatch_cache.clear()
    try:
        yield
    finally:
        for original, kernels in before.items():
            original.py_kernels.clear()
            original.py_kernels.update(kernels)
            original._dispatch_cache.clear()
