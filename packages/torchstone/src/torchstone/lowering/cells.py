"""The math of recurrent cells and their derivatives, for tensors and for values.

Each formula is written once. It uses the arithmetic that PyTorch's tensors and
``hlo``'s values share, and the few functions of :class:`Maths`. Not here:
loops over time, and the products with weights (a cell receives their results).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

Array = Any
"""A tensor or a value, ``[batch, …]``."""
State = tuple[Array, ...]
"""The hidden state, and for an LSTM the cell state."""


class Maths(Protocol):
    """The functions that a cell needs besides ``+``, ``-`` and ``*``."""

    def tanh(self, x: Array) -> Array: ...
    def sigmoid(self, x: Array) -> Array: ...
    def relu(self, x: Array) -> Array: ...
    def where_positive(self, x: Array, then: Array) -> Array:
        """Return ``then`` where ``x`` is positive or NaN, else zero."""

    def split(self, x: Array, count: int) -> Sequence[Array]:
        """Split the last axis into equal parts."""

    def join(self, parts: Sequence[Array]) -> Array:
        """Concatenate the parts along the last axis."""


@dataclass(frozen=True)
class Cell:
    """A kind of recurrent cell.

    ``forward(maths, x, h, state)`` takes the input's share of each gate, ``[batch, hidden]``,
    and the hidden state's shares, ``[batch, gates · hidden]``. It returns the next state and
    the activations that ``backward`` needs, concatenated.

    ``backward(maths, grads, activations, state)`` takes the gradients of the next state, each
    activation, and the state before the step. It returns the gradients of the two shares (the
    same object if they are equal), the gradient of the hidden state apart from what flows
    through ``h`` (or None), and the gradient of the cell state.
    """

    gates: int
    activations: int
    forward: Callable[[Maths, Sequence[Array], Array, State], tuple[State, Array]]
    backward: Callable[[Maths, State, Sequence[Array], State], tuple[Array, Array, Array | None, State]]

    def split_shares(self) -> bool:
        """True if the gradients of the two shares differ."""
        return self.gates == 3


def _lstm(m: Maths, x: Sequence[Array], h: Array, state: State) -> tuple[State, Array]:
    write, keep, new, show = (of_x + of_h for of_x, of_h in zip(x, m.split(h, 4), strict=True))
    write, keep, new, show = m.sigmoid(write), m.sigmoid(keep), m.tanh(new), m.sigmoid(show)
    memory = keep * state[1] + write * new
    return (show * m.tanh(memory), memory), m.join([write, keep, new, show])


def _lstm_backward(m: Maths, grads: State, activations: Sequence[Array], state: State) -> Any:
    write, keep, new, show = activations
    visible = m.tanh(keep * state[1] + write * new)
    memory = grads[1] + grads[0] * show * (1 - visible * visible)
    gates = m.join(
        [
            memory * new * write * (1 - write),
            memory * state[1] * keep * (1 - keep),
            memory * write * (1 - new * new),
            grads[0] * visible * show * (1 - show),
        ]
    )
    return gates, gates, None, (memory * keep,)


def lstm_exposed(m: Maths, activations: Array, memory: Array) -> Array:
    """An LSTM's output before its projection, from its activations and the cell state before the step."""
    write, keep, new, show = m.split(activations, 4)
    return show * m.tanh(keep * memory + write * new)


def _gru(m: Maths, x: Sequence[Array], h: Array, state: State) -> tuple[State, Array]:
    (reset_x, update_x, new_x), (reset_h, update_h, new_h) = x, m.split(h, 3)
    reset, update = m.sigmoid(reset_x + reset_h), m.sigmoid(update_x + update_h)
    new = m.tanh(new_x + reset * new_h)
    return ((state[0] - new) * update + new,), m.join([reset, update, new, new_h])


def _gru_backward(m: Maths, grads: State, activations: Sequence[Array], state: State) -> Any:
    reset, update, new, new_h = activations
    of_new = grads[0] * (1 - update) * (1 - new * new)
    of_update = grads[0] * (state[0] - new) * update * (1 - update)
    of_reset = of_new * new_h * reset * (1 - reset)
    shares = m.join([of_reset, of_update, of_new]), m.join([of_reset, of_update, of_new * reset])
    return *shares, grads[0] * update, ()


def _tanh(m: Maths, x: Sequence[Array], h: Array, state: State) -> tuple[State, Array]:
    hidden = m.tanh(x[0] + h)
    return (hidden,), hidden


def _tanh_backward(m: Maths, grads: State, activations: Sequence[Array], state: State) -> Any:
    (hidden,) = activations
    gates = grads[0] * (1 - hidden * hidden)
    return gates, gates, None, ()


def _relu(m: Maths, x: Sequence[Array], h: Array, state: State) -> tuple[State, Array]:
    hidden = m.relu(x[0] + h)
    return (hidden,), hidden


def _relu_backward(m: Maths, grads: State, activations: Sequence[Array], state: State) -> Any:
    gates = m.where_positive(activations[0], grads[0])
    return gates, gates, None, ()


CELLS = {
    "lstm": Cell(4, 4, _lstm, _lstm_backward),
    "gru": Cell(3, 4, _gru, _gru_backward),
    "rnn_tanh": Cell(1, 1, _tanh, _tanh_backward),
    "rnn_relu": Cell(1, 1, _relu, _relu_backward),
}
"""Maps ATen's names of networks to cells."""
