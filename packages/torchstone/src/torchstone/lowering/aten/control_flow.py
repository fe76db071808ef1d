"""Control flow on values: ``torch.cond``, ``while_loop``, ``scan`` and ``map``.

Not here: scans with a known operator (``scan``); ``associative_scan``, which
PyTorch expands into slices and calls of the combining function.

Subgraphs arrive as callables from values to a list of values. A size among their
operands is not a value: subgraphs know it from their metadata.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ... import hlo
from ...dtypes import BOOL, INT64
from ...errors import UnsupportedNode, UnsupportedOperators
from ...hlo import Value
from ..promotion import as_value
from ..registry import Spec, lowers_higher_order

higher_order = torch.ops.higher_order

Subgraph = Callable[..., list[Value]]

_NUMBERS = UnsupportedNode(
    "while_loop", 1, "it carries Python numbers", todo="carry 0-d tensors instead of Python numbers"
)


def _values(operands: Sequence[Any]) -> list[Value]:
    return [operand for operand in operands if isinstance(operand, Value)]


@lowers_higher_order(higher_order.cond)
def cond(
    pred: Any, true_fn: Subgraph, false_fn: Subgraph, operands: Sequence[Any] = (), *, out: tuple[Spec, ...]
) -> list[Value]:
    """Run one of two subgraphs, chosen by a bool of one element."""
    given = _values(operands)
    condition = hlo.reshape(as_value(pred, BOOL), ())
    like = [(spec.shape, spec.dtype) for spec in out]
    return hlo.if_(condition, lambda: true_fn(*given), lambda: false_fn(*given), like)


@lowers_higher_order(higher_order.while_loop)
def while_loop(
    cond_fn: Subgraph,
    body_fn: Subgraph,
    carried_inputs: Sequence[Any],
    additional_inputs: Sequence[Any],
    *,
    out: tuple[Spec, ...],
) -> list[Value]:
    """Apply the body to the carried values while the condition holds."""
    fixed = _values(additional_inputs)
    carried = _values(carried_inputs)
    if len(carried) != len(out):
        raise UnsupportedOperators([_NUMBERS])

    def condition(*state: Value) -> Value:
        return hlo.reshape(cond_fn(*state, *fixed)[0], ())

    return hlo.while_(condition, lambda *state: body_fn(*state, *fixed), carried)


@lowers_higher_order(higher_order.scan)
def scan(
    combine_fn: Subgraph,
    init: Sequence[Any],
    xs: Sequence[Any],
    additional_inputs: Sequence[Any],
    *,
    out: tuple[Spec, ...],
) -> list[Value]:
    """Repeat a step over axis 0 of ``xs``; return the last carry and the stacked results of all steps."""
    carry, sequences, fixed = _values(init), _values(xs), _values(additional_inputs)
    stacks = [hlo.full(spec.shape, 0, spec.dtype) for spec in out[len(carry) :]]
    count = len(carry)

    def step(i: Value, *state: Value) -> list[Value]:
        elements = [_element(sequence, i) for sequence in sequences]
        made = combine_fn(*state[:count], *elements, *fixed)
        stored = [_stored(stack, y, i) for stack, y in zip(state[count:], made[count:], strict=True)]
        return [*made[:count], *stored]

    length = hlo.dim_scalar(sequences[0].shape[0])
    return hlo.fori(length, step, [*carry, *stacks])


@lowers_higher_order(higher_order.map_impl)
def map_impl(
    f: Subgraph, xs: Sequence[Any], pos_args: Sequence[Any], *, out: tuple[Spec, ...]
) -> list[Value]:
    """Apply a function to each entry of ``xs`` along axis 0; stack the results."""
    return scan(f, (), xs, pos_args, out=out)


def _element(sequence: Value, i: Value) -> Value:
    """``sequence[i]``."""
    return hlo.reshape(hlo.take(sequence, hlo.reshape(i, (1,)), 0), sequence.shape[1:])


def _stored(stack: Value, y: Value, i: Value) -> Value:
    """Replace index ``i`` of ``stack`` by ``y``."""
    starts = [i, *(hlo.scalar(0, INT64) for _ in y.shape)]
    return hlo.dynamic_update_slice(stack, hlo.expand_dims(y, [0]), starts)
