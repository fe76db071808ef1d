"""Structured control flow and operations with Python bodies.

A body is a Python function of values that returns values; it runs once, while
its region is built. Bodies may use values from outside (implicit capture).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..dtypes import BOOL, INT32, DType
from ..errors import LoweringBug
from ._mlir import ir, stablehlo
from .dimensions import Dim, same_shape
from .elementwise import convert
from .value import Value, scalar, tensor_type

Body = Callable[..., Value | Sequence[Value]]


def _sequence(result: Value | Sequence[Value]) -> list[Value]:
    return [result] if isinstance(result, Value) else list(result)


def results(operation: Any, shapes: Sequence[tuple[Sequence[Dim], DType]]) -> list[Value]:
    """The operation's results as values."""
    return [Value(out, *spec) for out, spec in zip(operation.results, shapes, strict=True)]


def build_region(region: Any, arguments: Sequence[tuple[Sequence[Dim], DType]], body: Body) -> list[Value]:
    """Fill an empty region by running ``body`` on block arguments, and return the body's result."""
    block = region.blocks.append(*[tensor_type(shape, dtype) for shape, dtype in arguments])
    with ir.InsertionPoint(block):
        inputs = [Value(a, *spec) for a, spec in zip(block.arguments, arguments, strict=True)]
        outputs = _sequence(body(*inputs))
        stablehlo.return_([value.ir for value in outputs])
    return outputs


def while_(
    condition: Callable[..., Value], body: Callable[..., Sequence[Value]], initial: Sequence[Value]
) -> list[Value]:
    """Repeat ``body`` while ``condition`` (→ 0-d bool) holds; both get the loop state."""
    specs = [(value.shape, value.dtype) for value in initial]
    operation = stablehlo.WhileOp([value.ir.type for value in initial], [value.ir for value in initial])
    (test,) = build_region(operation.regions[0], specs, condition)
    if test.dtype is not BOOL or test.rank:
        raise LoweringBug(f"the condition of a while loop is a 0-d bool, not {test!r}")
    new = build_region(operation.regions[1], specs, body)
    for before, after in zip(initial, new, strict=True):
        if before.dtype is not after.dtype or not same_shape(before.shape, after.shape):
            raise LoweringBug(f"a while body changed its state from {before!r} to {after!r}")
    return results(operation, specs)


def _branches(operation: Any, bodies: Sequence[Callable[[], Any]]) -> list[tuple[Sequence[Dim], DType]]:
    specs: list[tuple[Sequence[Dim], DType]] = []
    for region, body in zip(operation.regions, bodies, strict=True):
        specs = [(value.shape, value.dtype) for value in build_region(region, (), body)]
    return specs


def if_(
    condition: Value,
    then: Callable[[], Sequence[Value]],
    otherwise: Callable[[], Sequence[Value]],
    like: Sequence[tuple[Sequence[Dim], DType]],
) -> list[Value]:
    """``then()`` if the 0-d bool ``condition`` holds, else ``otherwise()``; ``like`` gives result types."""
    operation = stablehlo.IfOp([tensor_type(shape, dtype) for shape, dtype in like], condition.ir)
    _branches(operation, (then, otherwise))
    return results(operation, like)


def case(
    index: Value,
    branches: Sequence[Callable[[], Sequence[Value]]],
    like: Sequence[tuple[Sequence[Dim], DType]],
) -> list[Value]:
    """Run the branch at the 0-d integer ``index``; an index out of range selects the last branch."""
    operation = stablehlo.CaseOp(
        [tensor_type(shape, dtype) for shape, dtype in like], convert(index, INT32).ir, len(branches)
    )
    _branches(operation, branches)
    return results(operation, like)


def fori(count: Value, body: Callable[..., Sequence[Value]], initial: Sequence[Value]) -> list[Value]:
    """Run ``body(i, *state)`` for each ``i`` below the 0-d integer ``count``; return the last state."""

    def step(i: Value, *state: Value) -> list[Value]:
        return [i + 1, *body(i, *state)]

    return while_(lambda i, *_: i < count, step, [scalar(0, count.dtype), *initial])[1:]
