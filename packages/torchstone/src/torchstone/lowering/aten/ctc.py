"""Connectionist temporal classification: its loss and gradient (Graves et al. 2006).

Both are recursions over time on the extended targets (blank, label, blank, …,
blank) in the log domain. Lengths are values, not shapes: the extended targets of
a batch are padded to one width, and states beyond the length of a target never
reach its result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ... import hlo
from ...dtypes import BOOL, FLOAT32, FLOAT64, INT32, INT64
from ...hlo import Value
from ...torch_internals.operators import namespace
from ..common import flatten, is_empty
from ..composites import composed
from ..conditions import CTC_LENGTHS
from ..misfits import Arguments, other_shape
from ..registry import Spec, lowers

aten = namespace("aten")

DTYPES = frozenset({FLOAT32, FLOAT64})
NEGATIVE = float("-inf")


def _lengths(lengths: Value | Sequence[int]) -> Value:
    """Convert lengths to int64 ``[batch]``; in graphs, they are numbers or a tensor of any rank."""
    if isinstance(lengths, Value):
        return hlo.convert(flatten(lengths), INT64)
    return hlo.constant(list(lengths), INT64)


def _column(values: Value, shape: hlo.Shape) -> Value:
    """Repeat ``[batch]`` along the states of ``[batch, states]``."""
    return hlo.broadcast_in_dim(values, shape, [0])


def _extended(targets: Value, lengths: Value, states: int, blank: int) -> Value:
    """Return the labels of all states, ``[batch, states]``.

    Targets are padded rows or one concatenated row.
    """
    batch = lengths.shape[0]
    state = hlo.iota((batch, states), 1, INT64)
    if is_empty(targets.shape):
        return hlo.full_like(state, blank)
    place = hlo.shift_right_arithmetic(state, 1)
    labels = hlo.convert(targets, INT64)
    if targets.rank == 1:
        (ends,) = hlo.associative_scan([lengths], 0, lambda a, b: a + b)
        place = hlo.minimum(place + _column(ends - lengths, place.shape), labels.shape[0] - 1)
        chosen = hlo.take(labels, place, 0)
    else:
        chosen = hlo.take_along(labels, hlo.minimum(place, labels.shape[1] - 1), 1)
    return hlo.select(hlo.eq(state & 1, 1), chosen, hlo.full_like(chosen, blank))


def _shifted(x: Value, by: int, fill: Any) -> Value:
    """Shift states by ``by``, which may be negative: state ``s`` gets the value of state ``s - by``."""
    size = x.shape[1]
    if by > 0:
        return hlo.pad_axis(hlo.slice_axis(x, 1, 0, max(size - by, 0)), fill, 1, min(by, size), 0)
    return hlo.pad_axis(hlo.slice_axis(x, 1, min(-by, size), size), fill, 1, 0, min(-by, size))


def _log_sum(terms: Sequence[Value]) -> Value:
    """``log Σ exp``; −inf if all terms are −inf."""
    largest = terms[0]
    for term in terms[1:]:
        largest = hlo.maximum(largest, term)
    base = hlo.select(hlo.eq(largest, NEGATIVE), hlo.zeros_like(largest), largest)
    total = hlo.exponential(terms[0] - base)
    for term in terms[1:]:
        total = total + hlo.exponential(term - base)
    return hlo.log(total) + base


def _may_skip(labels: Value) -> Value:
    """True for states that the state two positions before may skip to: those with a different label."""
    return hlo.ne(labels, _shifted(labels, 2, -1)) & (hlo.iota(labels.shape, 1, INT64) > 1)


def _emissions(log_probs: Value, labels: Value) -> Value:
    """Return each state's log probability at each time, ``[time, batch, states]``."""
    shape = (log_probs.shape[0], *labels.shape)
    return hlo.take_along(log_probs, hlo.broadcast_to(labels, shape), 2)


def _loss(
    log_probs: Value, targets: Value, input_lengths: Value, target_lengths: Value, blank: int, states: int
) -> tuple[Value, Value]:
    """``(negative log likelihood [batch], log α [batch, time, states])``."""
    time = log_probs.shape[0]
    labels = _extended(targets, target_lengths, states, blank)
    emissions = _emissions(log_probs, labels)
    skip = _may_skip(labels)
    state = hlo.iota(labels.shape, 1, INT64)
    nothing = hlo.full(labels.shape, NEGATIVE, log_probs.dtype)
    start = hlo.eq(state, 0) | (hlo.eq(state, 1) & _column(target_lengths > 0, state.shape))

    def step(t: Value, alphas: Value, alpha: Value) -> list[Value]:
        before = _log_sum(
            [alpha, _shifted(alpha, 1, NEGATIVE), hlo.select(skip, _shifted(alpha, 2, NEGATIVE), nothing)]
        )
        first = hlo.broadcast_to(hlo.eq(t, 0), start.shape)
        reached = hlo.select(first, hlo.select(start, hlo.zeros_like(before), nothing), before)
        new = reached + hlo.take(emissions, t, 0)
        running = hlo.broadcast_to(hlo.convert(t, INT64), input_lengths.shape) < input_lengths
        new = hlo.select(_column(running, new.shape), new, alpha)
        at = [t, hlo.scalar(0, INT32), hlo.scalar(0, INT32)]
        return [hlo.dynamic_update_slice(alphas, hlo.expand_dims(new, [0]), at), new]

    # The loop keeps time as the first axis, so that each step writes one block.
    alphas = hlo.full((time, *labels.shape), NEGATIVE, log_probs.dtype)
    alphas, alpha = hlo.fori(hlo.scalar(time, INT32), step, [alphas, nothing])
    last = _column(target_lengths * 2, state.shape)
    final = hlo.eq(state, last) | (hlo.eq(state, last - 1) & (last > 0))
    likelihood = _log_sum_over_states(hlo.select(final, alpha, nothing))
    no_input = hlo.select(hlo.eq(target_lengths, 0), hlo.zeros_like(likelihood), NEGATIVE)
    likelihood = hlo.select(hlo.eq(input_lengths, 0), no_input, likelihood)
    return -likelihood, hlo.transpose(alphas, [1, 0, 2])


def _log_sum_over_states(x: Value) -> Value:
    largest = hlo.reduce_max(x, [1])
    base = hlo.select(hlo.eq(largest, NEGATIVE), hlo.zeros_like(largest), largest)
    total = hlo.reduce_sum(hlo.exponential(x - _column(base, x.shape)), [1])
    return hlo.log(total) + base


def _gradient(
    grad: Value,
    log_probs: Value,
    targets: Value,
    input_lengths: Value,
    target_lengths: Value,
    loss: Value,
    log_alpha: Value,
    blank: int,
) -> Value:
    """``(p - posterior) · grad`` at each time, batch and class; zero beyond the input's length."""
    time, _, classes = log_probs.shape
    states = log_alpha.shape[2]
    labels = _extended(targets, target_lengths, states, blank)
    emissions = _emissions(log_probs, labels)
    skip = _shifted(hlo.convert(_may_skip(labels), INT32), -2, 0)
    state = hlo.iota(labels.shape, 1, INT64)
    nothing = hlo.full(labels.shape, NEGATIVE, log_probs.dtype)
    last = _column(target_lengths * 2, state.shape)
    final = hlo.eq(state, last) | (hlo.eq(state, last - 1) & (last > 0))
    ends = hlo.select(final, hlo.zeros_like(nothing), nothing)
    one_hot = hlo.eq(
        hlo.broadcast_in_dim(labels, (*labels.shape, classes), [0, 1]),
        hlo.iota((*labels.shape, classes), 2, INT64),
    )
    impossible = hlo.eq(loss, float("inf"))
    # If the last label is the blank itself, PyTorch's kernel overwrites the share of the blank after it.
    lost = hlo.eq(state, last) & hlo.eq(_shifted(labels, 1, -1), blank)

    def step(i: Value, gradients: Value, beta: Value) -> list[Value]:
        t = time - 1 - i
        emitted = hlo.take(emissions, t, 0)
        skipped = hlo.select(hlo.convert(skip, BOOL), _shifted(beta, -2, NEGATIVE), nothing)
        after = _log_sum([beta, _shifted(beta, -1, NEGATIVE), skipped])
        here = hlo.broadcast_to(hlo.convert(t, INT64), input_lengths.shape)
        at_end = _column(hlo.eq(here, input_lengths - 1), ends.shape)
        after = hlo.select(at_end, ends, after)
        running = here < input_lengths
        new = hlo.select(_column(running, beta.shape), after + emitted, beta)
        alpha = hlo.squeeze(hlo.take(log_alpha, hlo.expand_dims(t, [0]), 1), [1])
        posterior = hlo.exponential(alpha + new + _column(loss, alpha.shape) - emitted)
        posterior = hlo.select(
            hlo.eq(alpha, NEGATIVE) | hlo.eq(new, NEGATIVE) | (at_end & lost),
            hlo.zeros_like(posterior),
            posterior,
        )
        of_class = hlo.dot_general(
            posterior, hlo.convert(one_hot, posterior.dtype), contract=([1], [1]), batch=([0], [0])
        )
        of_class = hlo.select(
            _column(impossible, of_class.shape), hlo.full_like(of_class, float("nan")), of_class
        )
        change = (hlo.exponential(hlo.take(log_probs, t, 0)) - of_class) * _column(grad, of_class.shape)
        change = hlo.select(_column(running, change.shape), change, hlo.zeros_like(change))
        at = [t, hlo.scalar(0, INT32), hlo.scalar(0, INT32)]
        return [hlo.dynamic_update_slice(gradients, hlo.expand_dims(change, [0]), at), new]

    return hlo.fori(hlo.scalar(time, INT32), step, [hlo.zeros_like(log_probs), nothing])[0]


@lowers(
    aten._ctc_loss.default,
    aten._ctc_loss.Tensor,
    dtypes=DTYPES,
    ignores=("zero_infinity",),
    values=CTC_LENGTHS,
)
def _ctc_loss(
    log_probs: Value,
    targets: Value,
    input_lengths: Value | list[int],
    target_lengths: Value | list[int],
    blank: int = 0,
    *,
    out: tuple[Spec, Spec],
) -> Any:
    """Negative log likelihood of each target, and log α for the gradient.

    ``zero_infinity`` affects only the gradient: PyTorch replaces the loss itself.
    """
    states = out[1].shape[2]

    def kernel(log_probs: Value, targets: Value, inputs: Value, lengths: Value) -> tuple[Value, Value]:
        return _loss(log_probs, targets, inputs, lengths, blank, states)

    operands = [log_probs, targets, _lengths(input_lengths), _lengths(target_lengths)]
    return composed("ctc_loss", operands, kernel, out, {"blank": blank, "states": states})


def _refuses_misfits(arguments: Arguments) -> str | None:
    """Refuse a wrong blank and wrong batch sizes: the gradient's kernels read other memory instead."""
    if arguments["log_probs"].dim() != 3:
        return f"log_probs has {arguments['log_probs'].dim()} dimensions; expected 3"
    steps, batch, classes = arguments["log_probs"].shape
    if not 0 <= arguments["blank"] < classes:
        return f"blank={arguments['blank']} is not one of its {classes} classes"
    for name in ("input_lengths", "target_lengths", "neg_log_likelihood"):
        value = arguments[name]
        count = value.numel() if isinstance(value, torch.Tensor) else len(value)
        if said := other_shape(name, (count,), (batch,)):
            return said
    grad = arguments["grad"].shape
    if len(grad) == 1 and (said := other_shape("grad", grad, (batch,))):
        return said
    targets, log_alpha = arguments["targets"].shape, arguments["log_alpha"].shape
    if len(targets) == 2 and (said := other_shape("targets", targets, (batch, targets[1]))):
        return said
    return other_shape("log_alpha", log_alpha, (batch, steps, *log_alpha[2:]))


@lowers(
    aten._ctc_loss_backward.default,
    aten._ctc_loss_backward.Tensor,
    dtypes=DTYPES,
    refuses=_refuses_misfits,
)
def _ctc_loss_backward(
    grad: Value,
    log_probs: Value,
    targets: Value,
    input_lengths: Value | list[int],
    target_lengths: Value | list[int],
    neg_log_likelihood: Value,
    log_alpha: Value,
    blank: int,
    zero_infinity: bool = False,
    *,
    out: Spec,
) -> Any:
    """Gradient of the loss with respect to the log probabilities."""

    def kernel(grad: Value, log_probs: Value, *rest: Value) -> Value:
        targets, inputs, labels, loss, log_alpha = rest
        change = _gradient(grad, log_probs, targets, inputs, labels, loss, log_alpha, blank)
        if not zero_infinity:
            return change
        impossible = hlo.eq(loss, float("inf"))
        shown = hlo.broadcast_in_dim(impossible, change.shape, [1])
        return hlo.select(shown, hlo.zeros_like(change), change)

    lengths = [_lengths(input_lengths), _lengths(target_lengths)]
    operands = [grad, log_probs, targets, *lengths, neg_log_likelihood, log_alpha]
    return composed(
        "ctc_loss_backward", operands, kernel, out, {"blank": blank, "zero_infinity": zero_infinity}
    )
