"""Single steps of recurrent networks, kept whole: ``nn.LSTMCell``, ``nn.GRUCell``, ``nn.RNNCell``.

Not here: networks over sequences (``rnn``). Cells occur whole only in exported graphs,
because autograd expands them first. 16-bit floats are computed in float32.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...dtypes import COMPLEX, FLOATING, INTEGRAL, DType
from ...hlo import Value
from ...torch_internals.operators import namespace
from ..composites import Expand, expanded
from ..registry import Spec, lowers

aten = namespace("aten")


@lowers(aten.lstm_cell.default, dtypes=FLOATING | COMPLEX)
def lstm_cell(
    input: Value,
    hx: list[Value],
    w_ih: Value,
    w_hh: Value,
    b_ih: Value | None,
    b_hh: Value | None,
    expand_wide: Expand,
    out: Sequence[Spec],
) -> list[Value]:
    """The next hidden state and cell state."""
    return expanded("lstm_cell", [input, *hx, w_ih, w_hh, b_ih, b_hh], expand_wide, out, {})


def _lowers_cell(name: str, dtypes: frozenset[DType], meaning: str) -> None:
    """Register a cell with one state."""

    @lowers(getattr(aten, name).default, dtypes=dtypes)
    def cell(
        input: Value,
        hx: Value,
        w_ih: Value,
        w_hh: Value,
        b_ih: Value | None,
        b_hh: Value | None,
        expand_wide: Expand,
        out: Spec,
    ) -> list[Value]:
        return expanded(name, [input, hx, w_ih, w_hh, b_ih, b_hh], expand_wide, out, {})

    cell.__doc__ = meaning


_lowers_cell("gru_cell", FLOATING | COMPLEX, "The next hidden state.")
_lowers_cell(
    "rnn_tanh_cell",
    FLOATING | COMPLEX | INTEGRAL,
    "The next hidden state, through a hyperbolic tangent.",
)
_lowers_cell("rnn_relu_cell", FLOATING | INTEGRAL, "The next hidden state, through a ReLU.")
