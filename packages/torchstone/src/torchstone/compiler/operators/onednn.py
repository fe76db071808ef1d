"""Layers of LSTMs that run on eager PyTorch's own kernel, oneDNN's, between compiled parts.

The kernel lays out the weights once per call and keeps the gates of a step in CPU caches. A compiled
loop does neither. Here the kernel is an operator of Torchstone, for one layer and direction, whose
derivative is one operator too. Code that traces a graph for a device with this kernel uses
:func:`choosing` to select the layers that run on it. By default, no layer does. Exports never contain it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch

from ...lowering.own import own
from ...torch_internals.dispatch import any_requires_grad, below_autograd
from ...torch_internals.operators import MissingOverload, namespace
from ...torch_internals.tensors import check
from ...torch_internals.tracing import traced_size
from .declaring import declare, differentiate, implement

aten = namespace("aten")

Tensor = torch.Tensor
Tensors = list[torch.Tensor]

_MODE = 2
"""PyTorch's number for LSTMs."""


@dataclass(frozen=True)
class Layer:
    """The sizes that decide how fast a float32 layer is; ``saving`` is True if a gradient is needed."""

    steps: int
    batch: int
    inputs: int
    hidden: int
    saving: bool


_prefers: ContextVar[Callable[[Layer], bool] | None] = ContextVar("prefers", default=None)


@contextmanager
def choosing(prefers: Callable[[Layer], bool] | None) -> Iterator[None]:
    """Inside, layers for which ``prefers`` is true are traced as calls of the kernel; with None, none is."""
    token = _prefers.set(prefers)
    try:
        yield
    finally:
        _prefers.reset(token)


def any_chosen() -> bool:
    """Whether a layer may be traced as a call of the kernel at all."""
    return _prefers.get() is not None and not isinstance(aten.mkldnn_rnn_layer.default, MissingOverload)


def takes(x: Tensor, hx: Sequence[Tensor], params: Sequence[Tensor]) -> bool:
    """Whether a layer over ``x``, ``[time, batch, inputs]``, is to run on the kernel.

    ``hx`` are the two states, ``[batch, hidden]``, and ``params`` two weights and, if any, two biases.
    """
    prefers = _prefers.get()
    if prefers is None or not any_chosen() or len(hx) != 2 or len(params) not in (2, 4):
        return False
    if any(one.dtype != torch.float32 or one.device.type != "cpu" for one in (x, *hx, *params)):
        return False
    steps, batch, inputs, hidden = (traced_size(size) for size in (*x.shape, hx[0].shape[-1]))
    if not (steps and batch and inputs and hidden):
        return False
    return prefers(Layer(steps, batch, inputs, hidden, _saving(x, *hx, *params)))


def _saving(*tensors: Tensor) -> bool:
    return torch.is_grad_enabled() and bool(any_requires_grad(*tensors))


def run_layer(x: Tensor, hx: Sequence[Tensor], params: Sequence[Tensor], reverse: bool) -> Tensors:
    """Return output, last hidden state and last cell state of a layer for which :func:`takes` is true."""
    of_input, of_hidden = params[:2]
    biases = params[2:] or [of_input.new_zeros(of_input.shape[0])] * 2
    saving = _saving(x, *hx, *params)
    x = x.contiguous()  # one copy for the kernel and for its derivative
    made = own.onednn_lstm(x, *hx, [of_input, of_hidden, *biases], reverse, saving)
    return list(made[:3])


def run_kernel(
    x: Tensor, h: Tensor, c: Tensor, params: Tensors, reverse: bool, saving: bool
) -> Sequence[Tensor | None]:
    """Return output, last states and workspace of the kernel, which are those of ``onednn_lstm``.

    The workspace is None unless ``saving``. Call this below autograd.
    """
    hidden, states = h.shape[-1], (h.contiguous(), c.contiguous())
    # The kernel keeps what its gradient needs only if gradients are recorded.
    with nullcontext() if torch.is_grad_enabled() == saving else torch.set_grad_enabled(saving):
        made: Sequence[Tensor | None] = aten.mkldnn_rnn_layer.default(
            x.contiguous(), *params, *states, reverse, [], _MODE, hidden, 1, True, False, False, saving
        )
    return made


def _forward(x: Tensor, h: Tensor, c: Tensor, params: Tensors, reverse: bool, saving: bool) -> Tensors:
    with below_autograd():
        made = run_kernel(x, h, c, params, reverse, saving)
    return [x.new_empty(0, dtype=torch.uint8) if one is None else one for one in made]


def _forward_shapes(x: Tensor, h: Tensor, c: Tensor, params: Tensors, reverse: bool, saving: bool) -> Tensors:
    """Return output, last states, and an empty tensor for the workspace, whose size only the kernel knows."""
    output = x.new_empty((*x.shape[:-1], h.shape[-1]))
    return [output, h.new_empty(h.shape), c.new_empty(c.shape), x.new_empty(0, dtype=torch.uint8)]


def run_kernel_backward(
    grads: Tensors, x: Tensor, h: Tensor, c: Tensor, params: Tensors, made: Tensors, reverse: bool
) -> Sequence[Tensor]:
    """Return the results of ``onednn_lstm_backward`` for what :func:`run_kernel` made, below autograd too."""
    *results, workspace = made
    found: Sequence[Tensor] = aten.mkldnn_rnn_layer_backward.default(
        *(x.contiguous(), *params, h.contiguous(), c.contiguous(), *results),
        *(grad.contiguous() for grad in grads),
        *(reverse, _MODE, h.shape[-1], 1, True, True, False, [], False, workspace),
    )
    return found


def _backward(
    grads: Tensors, x: Tensor, h: Tensor, c: Tensor, params: Tensors, made: Tensors, reverse: bool
) -> Tensors:
    least = 4 * params[0].element_size() * made[0].numel()  # one number of each gate
    check(
        made[-1].numel() >= least,
        lambda: "Expected what onednn_lstm returned with saving=True, got a workspace of another layer",
    )
    with below_autograd():
        return list(run_kernel_backward(grads, x, h, c, params, made, reverse))


def _backward_shapes(
    grads: Tensors, x: Tensor, h: Tensor, c: Tensor, params: Tensors, made: Tensors, reverse: bool
) -> Tensors:
    """Return the gradients of input, parameters and initial states."""
    return [one.new_empty(one.shape) for one in (x, *params, h, c)]


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensors) -> None:
    x, h, c, params, ctx.reverse, _ = inputs
    ctx.save_for_backward(x, h, c, *params, *output)


def _differentiate(ctx: Any, grads: Sequence[Tensor | None]) -> tuple[Any, ...]:
    x, h, c, *rest = ctx.saved_tensors
    params, made = rest[:4], rest[4:]
    given = [torch.zeros_like(o) if g is None else g for o, g in zip(made[:3], grads, strict=False)]
    of_x, *others = own.onednn_lstm_backward(given, x, h, c, params, made, ctx.reverse)
    return of_x, others[4], others[5], others[:4], None, None


_REASON = "it is eager PyTorch's own kernel, which was measured to be faster than a compiled loop"

implement("onednn_lstm", _forward, _forward_shapes)
differentiate("onednn_lstm", _differentiate, _save, through="onednn_lstm_backward")
implement(
    "onednn_lstm_backward",
    _backward,
    _backward_shapes,
    no_gradient="a compiled function is differentiated once",
)
declare(own.onednn_lstm.default, own.onednn_lstm_backward.default, eager=_REASON)
