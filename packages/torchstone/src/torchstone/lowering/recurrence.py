"""One layer of a recurrent network, in one direction, as a loop over time; and that loop's gradient.

A layer runs over padded sequences, ``[time, batch, …]``, or packed ones,
``[rows, …]``. :class:`Padded` and :class:`Packed` know which rows belong to a step.
Not here: operators (``lowering.aten.rnn``) and the math of a cell
(``lowering.cells``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from .. import hlo
from ..dtypes import INT32, DType
from ..hlo import Value
from .cells import Cell, lstm_exposed


class ValueMaths:
    """The functions of :class:`~torchstone.lowering.cells.Maths` for values."""

    tanh = staticmethod(hlo.tanh)
    sigmoid = staticmethod(hlo.logistic)

    @staticmethod
    def relu(x: Value) -> Value:
        return hlo.maximum(x, 0.0)

    @staticmethod
    def where_positive(x: Value, then: Value) -> Value:
        return hlo.select(x <= 0, 0, then)

    @staticmethod
    def split(x: Value, count: int) -> Sequence[Value]:
        last, size = x.rank - 1, x.shape[-1] // count
        return [hlo.slice_axis(x, last, i * size, (i + 1) * size) for i in range(count)]

    @staticmethod
    def join(parts: Sequence[Value]) -> Value:
        return hlo.concatenate(list(parts), parts[0].rank - 1)


_maths = ValueMaths()

_BLOCK = 64
"""The number of steps whose gate shares are computed at once; those of all steps do not fit into caches."""


@dataclass(frozen=True)
class Input:
    """The input of a layer: rows, and the weight and bias that make gate shares of them.

    Without a weight, the rows already are the shares.
    """

    rows: Value
    weight: Value | None = None
    bias: Value | None = None

    def shares(self, rows: Value) -> Value:
        """Compute the gate shares of some of the rows; the last axis is ``gates · hidden``."""
        return rows if self.weight is None else product(rows, self.weight, self.bias)


@dataclass(frozen=True)
class Weights:
    """The parameters that one layer and direction applies to the hidden state: ``[gates, hidden]``, …"""

    of_hidden: Value
    bias: Value | None
    projection: Value | None


class Rows(Protocol):
    """Access to the rows of one step in a buffer of the rows of all steps."""

    @property
    def steps(self) -> Value:
        """The number of steps (0-d int32)."""

    @property
    def known_steps(self) -> int | None:
        """The number of steps as an int, if rows are ``[time, batch, …]`` with static sizes; else None."""

    def buffer(self, width: hlo.Dim, dtype: DType) -> Value:
        """Make a buffer of zeros for all rows."""

    def enter(self, rows: Value) -> Value:
        """Convert an operand's rows to a buffer."""

    def leave(self, buffer: Value) -> Value:
        """Convert a buffer to an operand's rows."""

    def read(self, buffer: Value, t: Value, parts: int) -> list[Value]:
        """Read the rows of step ``t`` in equal parts of their width: ``[batch, width / parts]`` each.

        Parts are read one by one. If several parts shared one read, an engine would compute it in a separate
        function, one element at a time.
        """

    def write(self, buffer: Value, t: Value, rows: Value) -> Value:
        """Return ``buffer`` with the rows of step ``t`` replaced."""

    def carry(self, t: Value, new: Value, old: Value) -> Value:
        """Return the state after step ``t``; sequences without a row in that step keep the old state."""


class Padded:
    """Rows ``[time, batch, …]``: each sequence has a row in each step."""

    def __init__(self, time: hlo.Dim, batch: hlo.Dim) -> None:
        self._lead = (time, batch)
        self.steps = hlo.convert(hlo.dim_scalar(time), INT32)
        self.known_steps = time if isinstance(time, int) and isinstance(batch, int) else None

    def buffer(self, width: hlo.Dim, dtype: DType) -> Value:
        return hlo.full((*self._lead, width), 0, dtype)

    def enter(self, rows: Value) -> Value:
        return rows

    leave = enter

    def read(self, buffer: Value, t: Value, parts: int) -> list[Value]:
        (_, batch), width = self._lead, buffer.shape[2] // parts
        if not isinstance(batch, int):
            return list(_maths.split(hlo.take(buffer, t, 0), parts))
        zero, sizes = hlo.scalar(0, INT32), (1, batch, width)
        starts = [[t, zero, hlo.scalar(part * width, INT32)] for part in range(parts)]
        return [hlo.squeeze(hlo.dynamic_slice(buffer, start, sizes), [0]) for start in starts]

    def write(self, buffer: Value, t: Value, rows: Value) -> Value:
        zero = hlo.scalar(0, INT32)
        return hlo.dynamic_update_slice(buffer, hlo.expand_dims(rows, [0]), [t, zero, zero])

    def carry(self, t: Value, new: Value, old: Value) -> Value:
        return new


class Packed:
    """Rows ``[rows, …]``, one step after another; step ``t`` has rows of the first ``sizes[t]`` sequences.

    ``batch`` is the number of sequences. Buffers have ``batch`` extra rows at their end, so that a whole
    batch can be read at each step. Rows past those of the step belong to later steps.
    """

    known_steps = None

    def __init__(self, rows: hlo.Dim, batch: int, sizes: Value) -> None:
        self._rows, self._batch = rows, batch
        self._sizes = hlo.convert(sizes, INT32)
        self.steps = hlo.convert(hlo.dim_scalar(sizes.shape[0]), INT32)

        def place(t: Value, start: Value, starts: Value) -> list[Value]:
            put = hlo.dynamic_update_slice(starts, hlo.reshape(start, (1,)), [t])
            return [start + hlo.take(self._sizes, t, 0), put]

        first = [hlo.scalar(0, INT32), hlo.zeros_like(self._sizes)]
        self._starts = hlo.fori(self.steps, place, first)[1]

    def buffer(self, width: hlo.Dim, dtype: DType) -> Value:
        return hlo.full((self._rows + self._batch, width), 0, dtype)

    def enter(self, rows: Value) -> Value:
        return hlo.pad_axis(rows, 0, 0, 0, self._batch)

    def leave(self, buffer: Value) -> Value:
        return hlo.slice_axis(buffer, 0, 0, self._rows)

    def _start(self, t: Value, column: int = 0) -> list[Value]:
        return [hlo.take(self._starts, t, 0), hlo.scalar(column, INT32)]

    def read(self, buffer: Value, t: Value, parts: int) -> list[Value]:
        sizes = (self._batch, buffer.shape[1] // parts)
        starts = [self._start(t, part * sizes[1]) for part in range(parts)]
        return [hlo.dynamic_slice(buffer, start, sizes) for start in starts]

    def write(self, buffer: Value, t: Value, rows: Value) -> Value:
        (old,) = self.read(buffer, t, 1)
        return hlo.dynamic_update_slice(buffer, self.carry(t, rows, old), self._start(t))

    def carry(self, t: Value, new: Value, old: Value) -> Value:
        size = hlo.broadcast_to(hlo.take(self._sizes, t, 0), new.shape)
        return hlo.select(hlo.iota(new.shape, 0, INT32) < size, new, old)


def product(x: Value, weight: Value, bias: Value | None, *, contracted: int = 1) -> Value:
    """Compute ``x @ weightᵀ + bias``, or ``x @ weight + bias`` if the ``contracted`` axis is 0."""
    result = hlo.dot_general(x, weight, contract=([x.rank - 1], [contracted]))
    return result if bias is None else result + hlo.broadcast_to(bias, result.shape)


def _each_step(
    rows: Rows,
    given: Input,
    step: Callable[..., list[Value]],
    state: Sequence[Value],
    *,
    reverse: bool,
) -> list[Value]:
    """Run ``step(t, shares, at, *state)`` for each step ``t`` and return the last state.

    The gate shares of the step are step ``at`` of ``shares``.
    """
    time = rows.known_steps
    if given.weight is None or time is None:
        shares = rows.enter(given.shares(given.rows))

        def one(i: Value, *state: Value) -> list[Value]:
            t = rows.steps - 1 - i if reverse else i
            return step(t, shares, t, *state)

        return hlo.fori(rows.steps, one, state)

    def block(done: Value, count: int, state: Sequence[Value]) -> list[Value]:
        """Run ``count`` steps after the first ``done`` steps."""
        start, zero = time - count - done if reverse else done, hlo.scalar(0, INT32)
        own = hlo.dynamic_slice(given.rows, [start, zero, zero], (count, *given.rows.shape[1:]))
        shares = given.shares(own)

        def one(i: Value, *state: Value) -> list[Value]:
            at = count - 1 - i if reverse else i
            return step(start + at, shares, at, *state)

        return hlo.fori(hlo.scalar(count, INT32), one, state)

    blocks, rest = divmod(time, _BLOCK)
    if blocks:
        count = hlo.scalar(blocks, INT32)
        state = hlo.fori(count, lambda i, *state: block(i * _BLOCK, _BLOCK, state), state)
    return block(hlo.scalar(blocks * _BLOCK, INT32), rest, state) if rest else list(state)


def run_layer(
    rows: Rows,
    given: Input,
    initial: Sequence[Value],
    weights: Weights,
    cell: Cell,
    *,
    reverse: bool,
    saving: bool = False,
) -> tuple[Value, list[Value], list[Value]]:
    """Return the output, the last states and, if ``saving``, the values for :func:`differentiate_layer`.

    The initial states are ``[batch, hidden]``.
    """
    # Transpose once: in each step a small product of rows by columns would cost an engine 50% more.
    of_hidden = hlo.transpose(weights.of_hidden, [1, 0])
    projection = None if weights.projection is None else hlo.transpose(weights.projection, [1, 0])
    widths = [initial[0].shape[1]]
    if saving:
        hidden = weights.of_hidden.shape[0] // cell.gates
        widths += [cell.activations * hidden, *(state.shape[1] for state in initial)]

    def step(t: Value, shares: Value, at: Value, *carried: Value) -> list[Value]:
        buffers, state = carried[: len(widths)], carried[len(widths) :]
        share = product(state[0], of_hidden, weights.bias, contracted=0)
        new, activations = cell.forward(_maths, rows.read(shares, at, cell.gates), share, state)
        if projection is not None:
            new = (product(new[0], projection, None, contracted=0), *new[1:])
        made = [new[0], activations, *state][: len(widths)]
        written = [rows.write(buffer, t, value) for buffer, value in zip(buffers, made, strict=True)]
        return [*written, *(rows.carry(t, a, b) for a, b in zip(new, state, strict=True))]

    empty = [rows.buffer(width, given.rows.dtype) for width in widths]
    final = _each_step(rows, given, step, [*empty, *initial], reverse=reverse)
    output, *saved = (rows.leave(buffer) for buffer in final[: len(widths)])
    return output, final[len(widths) :], saved


def differentiate_layer(
    rows: Rows,
    grad_output: Value,
    grad_last: Sequence[Value],
    saved: Sequence[Value],
    weight: Value,
    projection: Value | None,
    cell: Cell,
    *,
    reverse: bool,
) -> list[Value]:
    """Return the gradients of shares, initial states, weight, bias and, if there is one, the projection.

    This is backpropagation through time: one loop carries the gradient of the state. The
    gradients of the weights are products over all rows, computed after the loop.
    """
    conjugated = hlo.conj if weight.dtype.is_complex else lambda value: value
    grads = [conjugated(grad) for grad in grad_last]  # PyTorch's gradients are conjugates
    outputs = rows.enter(conjugated(grad_output))
    activations, *previous = (rows.enter(value) for value in saved)
    widths = [weight.shape[0]] * (2 if cell.split_shares() else 1)
    widths += [] if projection is None else [grad_output.shape[-1]]

    def step(i: Value, *carried: Value) -> list[Value]:
        t = i if reverse else rows.steps - 1 - i
        buffers, old = carried[: len(widths)], carried[len(widths) :]
        hidden = old[0] + rows.read(outputs, t, 1)[0]
        shown = hidden if projection is None else hlo.dot_general(hidden, projection, contract=([1], [0]))
        state = tuple(rows.read(value, t, 1)[0] for value in previous)
        active = rows.read(activations, t, cell.activations)
        of_x, of_h, direct, memory = cell.backward(_maths, (shown, *old[1:]), active, state)
        through = hlo.dot_general(of_h, weight, contract=([1], [0]))
        new = (through if direct is None else through + direct, *memory)
        made = [of_x, *([of_h] if cell.split_shares() else []), *([] if projection is None else [hidden])]
        written = [rows.write(buffer, t, value) for buffer, value in zip(buffers, made, strict=True)]
        return [*written, *(rows.carry(t, a, b) for a, b in zip(new, old, strict=True))]

    empty = [rows.buffer(width, weight.dtype) for width in widths]
    final = hlo.fori(rows.steps, step, [*empty, *grads])
    made = [rows.leave(buffer) for buffer in final[: len(widths)]]
    of_x, of_h = made[0], made[1 if cell.split_shares() else 0]
    lead = list(range(of_h.rank - 1))
    results = [of_x, *final[len(widths) :]]
    results += [hlo.dot_general(of_h, saved[1], contract=(lead, lead)), hlo.reduce_sum(of_h, lead)]
    if projection is not None:
        exposed = lstm_exposed(_maths, saved[0], saved[2])
        results.append(hlo.dot_general(made[-1], exposed, contract=(lead, lead)))
    return [conjugated(value) for value in results]
