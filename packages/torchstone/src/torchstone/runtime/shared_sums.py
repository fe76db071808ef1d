"""Makes XLA's CPU compiler compute sums of many shifted signals only once.

A depthwise convolution is a sum of products with slices of its signal. XLA's CPU compiler assumes that
elementwise operations are cheap, and computes them again in each operation that reads the result. For a
7 × 7 kernel that is 49 products for each element, three times if layer norm follows. Optimization barriers
do not prevent this. Here each such sum becomes the result of a function that XLA is told not to inline.

This pass runs before the assignment of layouts: products with slices are fastest with channels first,
because the elements of a slice are then adjacent in memory.
"""

from __future__ import annotations

from typing import Any

from . import _composites, _jaxlib

ir, stablehlo, func = _jaxlib.ir, _jaxlib.stablehlo, _jaxlib.func

_FEWEST = 8
"""The smallest number of different slices in a sum that gets a function of its own."""
_JOINED = frozenset(
    f"stablehlo.{name}"
    for name in (
        *("abs", "add", "and", "broadcast_in_dim", "clamp", "compare", "constant", "convert", "maximum"),
        *("minimum", "multiply", "negate", "or", "reshape", "select", "slice", "subtract"),
    )
)
"""Operations that XLA computes again in each operation that reads their result."""
_SUMS = frozenset({"stablehlo.add", "stablehlo.subtract"})
_LAYOUTS = frozenset({"stablehlo.reshape", "stablehlo.transpose"})
"""Operations that XLA looks through: the readers of their result count as readers of their operand."""


def compute_once(module: Any) -> None:
    """Move each sum of many slices that has several readers, in ``@main``, to a function of its own."""
    if len(_jaxlib.operations(module, "stablehlo.slice")) < _FEWEST:
        return
    _composites.inline_composites(module)
    slices: dict[Any, frozenset[Any]] = {}  # by value: the slices in the sum that it is or is computed from
    moved: dict[Any, None] = {}
    found = 0
    for operation in list(_jaxlib.main_function(module).entry_block.operations):
        op = operation.operation
        if op.name not in _JOINED:
            continue
        value = op.results[0]
        added = _slices(op, [slices[operand] for operand in op.operands if operand in slices])
        if len(added) >= _FEWEST and _has_several_readers(value):
            moved |= dict.fromkeys(_outline(module, value, f"torchstone_computed_once_{found}"))
            found += 1
        elif added:
            slices[value] = added
    for op in reversed(moved):  # erased only now, so that no new value gets the address of one of theirs
        if not list(op.results[0].uses):
            op.erase()


def _slices(op: Any, earlier: list[frozenset[Any]]) -> frozenset[Any]:
    """Return the slices, at most ``_FEWEST``, in the sum that the result of ``op`` is computed from.

    ``earlier`` has the same for the operands.
    """
    if op.name == "stablehlo.slice":
        return frozenset({op.results[0]})
    if op.name in _SUMS:
        return frozenset(list(frozenset().union(*earlier))[:_FEWEST])
    return max(earlier, key=len, default=frozenset())


def _has_several_readers(value: Any) -> bool:
    readers = {use.owner.operation for use in value.uses}
    if len(readers) == 1:
        (reader,) = readers
        return reader.name in _LAYOUTS and _has_several_readers(reader.results[0])
    return bool(readers)


def _outline(module: Any, value: Any, name: str) -> list[Any]:
    """Compute ``value`` in a new function ``name``, and return the operations that were copied to it.

    These are the operations that XLA would repeat together with ``value``.
    """
    operations, inputs = _cone(value)
    with value.owner.location:
        with ir.InsertionPoint.at_block_begin(module.body):
            types = [one.type for one in inputs], [value.type]
            function = func.FuncOp(name, types, visibility="private")
        block = function.add_entry_block()
        with ir.InsertionPoint(block):
            func.ReturnOp([_copied(operations, dict(zip(inputs, block.arguments, strict=True)))])
        with ir.InsertionPoint(value.owner):
            call = func.CallOp([value.type], ir.FlatSymbolRefAttr.get(name), inputs)
    call.operation.attributes[_composites.KEPT] = ir.DictAttr.get({"inlineable": ir.StringAttr.get("false")})
    value.replace_all_uses_with(call.results[0])
    return operations


def _cone(value: Any) -> tuple[list[Any], list[Any]]:
    """Return the operations that XLA would repeat to compute ``value``, in order, and what they read."""
    operations: dict[Any, Any] = {}
    inputs: dict[Any, None] = {}
    waiting = [value]
    while waiting:
        one = waiting[-1]
        op = one.owner
        if isinstance(op, ir.Block) or op.operation.name not in _JOINED:
            inputs[waiting.pop()] = None
        elif missing := [given for given in op.operands if given not in operations and given not in inputs]:
            waiting += missing
        else:
            operations[waiting.pop()] = op.operation
    return list(operations.values()), list(inputs)


def _copied(operations: list[Any], values: dict[Any, Any]) -> Any:
    """Copy ``operations``, with operands replaced as ``values`` says; return the result of the last copy."""
    for op in operations:
        made = op.clone()
        for place, operand in enumerate(op.operands):
            made.operands[place] = values[operand]
        values[op.results[0]] = made.results[0]
    return values[operations[-1].results[0]]
