"""Cells of recurrent networks, each of which PyTorch calls as one operator on a device.

Each cell is written with operators that have lowerings, and becomes one program. The gates have the order of
aten/src/ATen/native/RNN.cpp. The workspace holds what the backward operators need.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Tensor = torch.Tensor


def _sum(first: Tensor, second: Tensor, *biases: Tensor | None) -> Tensor:
    total = first + second
    for bias in biases:
        total = total if bias is None else total + bias
    return total


def lstm_cell(
    input_gates: Tensor,
    hidden_gates: Tensor,
    cx: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return ``(hy, cy, workspace)``; the workspace holds the four gates."""
    i, f, g, o = _sum(input_gates, hidden_gates, input_bias, hidden_bias).chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    cy = f * cx + i * g
    return o * cy.tanh(), cy, torch.cat([i, f, g, o], 1)


def lstm_cell_backward(
    grad_hy: Tensor | None, grad_cy: Tensor | None, cx: Tensor, cy: Tensor, workspace: Tensor, has_bias: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the gradients of the gates, of ``cx``, and of a bias."""
    i, f, g, o = workspace.chunk(4, 1)
    grad_hy = torch.zeros_like(cy) if grad_hy is None else grad_hy
    squashed = cy.tanh()
    through = grad_hy * o * (1 - squashed * squashed)
    through = through if grad_cy is None else through + grad_cy
    gates = torch.cat(
        [
            through * g * i * (1 - i),
            through * cx * f * (1 - f),
            through * i * (1 - g * g),
            grad_hy * squashed * o * (1 - o),
        ],
        1,
    )
    return gates, through * f, gates.sum(0) if has_bias else None


def gru_cell(
    input_gates: Tensor,
    hidden_gates: Tensor,
    hx: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return ``(hy, workspace)``; the workspace holds the gates, ``hx``, and the new gate's hidden part."""
    ir, ii, i_n = (input_gates if input_bias is None else input_gates + input_bias).chunk(3, 1)
    hr, hi, hn = (hidden_gates if hidden_bias is None else hidden_gates + hidden_bias).chunk(3, 1)
    reset, update = (ir + hr).sigmoid(), (ii + hi).sigmoid()
    new = (i_n + reset * hn).tanh()
    return new + update * (hx - new), torch.cat([reset, update, new, hx, hn], 1)


def gru_cell_backward(
    grad_hy: Tensor, workspace: Tensor, has_bias: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    """Return the gradients of the input gates, hidden gates, ``hx``, input bias, and hidden bias."""
    reset, update, new, hx, hn = workspace.chunk(5, 1)
    grad_new = grad_hy * (1 - update) * (1 - new * new)
    grad_update = grad_hy * (hx - new) * update * (1 - update)
    grad_reset = grad_new * hn * reset * (1 - reset)
    inputs = torch.cat([grad_reset, grad_update, grad_new], 1)
    hidden = torch.cat([grad_reset, grad_update, grad_new * reset], 1)
    biases = (inputs.sum(0), hidden.sum(0)) if has_bias else (None, None)
    return inputs, hidden, grad_hy * update, *biases


COMPOSED: dict[str, Callable[..., Any]] = {
    "_thnn_fused_lstm_cell": lstm_cell,
    "_thnn_fused_lstm_cell_backward_impl": lstm_cell_backward,
    "_thnn_fused_gru_cell": gru_cell,
    "_thnn_fused_gru_cell_backward": gru_cell_backward,
}
"""Traceable functions for operators that PyTorch implements only for other devices, by operator name."""
