"""Single steps of recurrent networks, kept whole: ``nn.LSTMCell``, ``nn.GRUCell``, ``nn.RNNCell``.

Not here: networks over sequences (``rnn``). Cells occur whole only in exported graphs,
because autograd expands them first. 16-bit floats are computed in float32.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...dtypes import COMPLEX, FLOATING, INTEGRAL
from ...hlo import Value
from ...torch_internals.operators import namespace
from ..composites import Expand, Optional, expanded
from ..registry import Spec, lowers

aten = namespace("aten")


@lowers(aten.lstm_cell.default, dtypes=FLOATING | COMPLEX)
def lstm_cell(
    input: Value,
    hx: list[Value],
    w_ih: Value,
    w_hh: Value,
    b_ih: Optional,
    b_hh: Optional,
    expand_wide: Expand,
    out: Sequence[Spec],
) -> list[Value]:
    """The next hidden state and cell state."""
    return expanded("lstm_cell", [input, *hx, w_ih, w_hh, b_ih, b_hh], expand_wide, out, {})


@lowers(aten.gru_cell.default, dtypes=FLOATING | COMPLEX)
def gru_cell(
    input: Value,
    hx: Value,
    w_ih: Value,
    w_hh: Value,
    b_ih: Optional,
    b_hh: Optional,
    expand_wide: Expand,
    out: Spec,
) -> list[Value]:
    """The next hidden state."""
    return expanded("gru_cell", [input, hx, w_ih, w_hh, b_ih, b_hh], expand_wide, out, {})


@lowers(aten.rnn_tanh_cell.default, dtypes=FLOATING | COMPLEX | INTEGRAL)
def rnn_tanh_cell(
    input: Value,
    hx: Value,
    w_ih: Value,
    w_hh: Value,
    b_ih: Optional,
    b_hh: Optional,
    expand_wide: Expand,
    out: Spec,
) -> list[Value]:
    """The next hidden state, through a hyperbolic tangent."""
    return expanded("rnn_tanh_cell", [input, hx, w_ih, w_hh, b_ih, b_hh], expand_wide, out, {})


@lowers(aten.rnn_relu_cell.default, dtypes=FLOATING | INTEGRAL)
def rnn_relu_cell(
    input: Value,
    hx: Value,
    w_ih: Value,
    w_hh: Value,
    b_ih: Optional,
    b_hh: Optional,
    expand_wide: Expand,
    out: Spec,
) -> list[Value]:
    """The next hidden state, through a ReLU."""
    return expanded("rnn_relu_cell", [input, hx, w_ih, w_hh, b_ih, b_hh], expand_wide, out, {})
