"""Computes products with a repeated operand without the repetitions, on XLA's CPU.

In attention with grouped queries, several query heads read one head of keys and values. Models first repeat
the keys for each query head, and XLA's CPU compiler writes the copies to memory in every call. Here all rows
of the other operand that are multiplied with the same keys become rows of one product: ``kv`` products of
``group × m`` rows instead of ``kv × group`` products of ``m`` rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from . import _composites, _jaxlib

ir, stablehlo = _jaxlib.ir, _jaxlib.stablehlo

_KEPT_AXES = frozenset({"stablehlo.convert", "stablehlo.transpose"})
"""Operations that may stand between the repetition and the product."""


class _Repeated(NamedTuple):
    """A value that repeats each slice of ``source`` along ``axis``, ``times`` times in a row."""

    source: Any
    axis: int
    times: int


def compute_grouped(module: Any) -> None:
    """Rewrite the products whose right operand is repeated, in a parsed module and its nested regions."""
    if not any(_repeated(op.result) for op in _jaxlib.operations(module, "stablehlo.reshape")):
        return
    _composites.inline_composites(module)
    for op in _jaxlib.operations(module, "stablehlo.dot_general"):
        repeated = _repeated(op.rhs)
        if repeated is not None and _is_grouped(op, repeated.axis):
            with ir.InsertionPoint(op), op.location:
                op.result.replace_all_uses_with(_grouped(op, repeated))
            op.operation.erase()


def _repeated(value: Any) -> _Repeated | None:
    """Return what ``value`` repeats, or None if it repeats nothing.

    A repetition is a broadcast along a new axis, and a reshape that merges this axis with the one before it.
    """
    if isinstance(value.owner, ir.Block) or not ir.RankedTensorType(value.type).has_static_shape:
        return None
    op = value.owner
    if op.name in _KEPT_AXES:
        found = _repeated(op.operands[0])
        if found is None or op.name == "stablehlo.convert":
            return found
        return found._replace(axis=list(op.attributes["permutation"]).index(found.axis))
    if op.name != "stablehlo.reshape" or isinstance(op.operands[0].owner, ir.Block):
        return None
    broadcast = op.operands[0].owner
    if broadcast.name != "stablehlo.broadcast_in_dim":
        return None
    given, wide, merged = (list(one.type.shape) for one in (*broadcast.operands, op.operands[0], value))
    dims = list(broadcast.attributes["broadcast_dimensions"])
    made = {axis: size for axis, size in enumerate(wide) if axis not in dims}
    made |= {axis: wide[axis] for axis, size in zip(dims, given, strict=True) if size != wide[axis]}
    if len(made) != 1 or dims != sorted(dims):
        return None
    ((axis, times),) = made.items()
    if axis == 0 or times < 2 or merged != [*wide[: axis - 1], wide[axis - 1] * times, *wide[axis + 1 :]]:
        return None
    return _Repeated(broadcast.operands[0], axis - 1, times)


def _is_grouped(op: Any, axis: int) -> bool:
    """Whether ``axis`` is the right operand's last batch axis, and the left's rows come after its batch."""
    left, right, contracted, _ = _axes(op)
    if axis not in right or right.index(axis) != len(right) - 1:
        return False
    rows = [one for one in range(len(op.lhs.type.shape)) if one not in {*left, *contracted}]
    return all(left[-1] < one for one in rows)


def _grouped(op: Any, repeated: _Repeated) -> Any:
    """Return the result of ``op``, computed from the source of its right operand without repetitions."""
    left, right, contracted, of_right = _axes(op)
    axis, times = left[-1], repeated.times
    shape, result = list(op.lhs.type.shape), list(op.result.type.shape)
    split = [*shape[:axis], shape[axis] // times, times, *shape[axis + 1 :]]
    batch = [*result[: len(left) - 1], shape[axis] // times]

    def moved(axes: list[int]) -> list[int]:
        return [one + (one > axis) for one in axes]

    made = stablehlo.DotGeneralOp(
        _type([*batch, times, *result[len(left) :]], op.result),
        _reshaped(op.lhs, split),
        _source(op.rhs, repeated),
        stablehlo.DotDimensionNumbers.get(
            lhs_batching_dimensions=moved(left),
            rhs_batching_dimensions=right,
            lhs_contracting_dimensions=moved(contracted),
            rhs_contracting_dimensions=of_right,
        ),
    )
    for name in ("precision_config", "algorithm"):
        if name in op.attributes:
            made.attributes[name] = op.attributes[name]
    return _reshaped(made.result, result)


def _source(value: Any, repeated: _Repeated) -> Any:
    """Return ``value`` without its repetitions: apply the operations after them to the source instead."""
    op = value.owner
    if op.name not in _KEPT_AXES:
        shape = list(value.type.shape)
        shape[repeated.axis] //= repeated.times
        return _reshaped(repeated.source, shape)
    if op.name == "stablehlo.convert":
        source = _source(op.operands[0], repeated)
        return stablehlo.convert(_type(list(source.type.shape), value), source)
    order = list(op.attributes["permutation"])
    source = _source(op.operands[0], repeated._replace(axis=order[repeated.axis]))
    return stablehlo.transpose(source, ir.DenseI64ArrayAttr.get(order))


def _axes(op: Any) -> tuple[list[int], list[int], list[int], list[int]]:
    """Return the batch axes of the left and right operands, then their contracted axes."""
    numbers = stablehlo.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    return (
        list(numbers.lhs_batching_dimensions),
        list(numbers.rhs_batching_dimensions),
        list(numbers.lhs_contracting_dimensions),
        list(numbers.rhs_contracting_dimensions),
    )


def _reshaped(value: Any, shape: list[int]) -> Any:
    return stablehlo.reshape(_type(shape, value), value)


def _type(shape: list[int], like: Any) -> Any:
    return ir.RankedTensorType.get(shape, like.type.element_type)
