"""Replaces the composites of a parsed module by their decompositions or by operations of CHLO."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ._jaxlib import ir, main_function, operations, run_passes

KEPT = "mhlo.frontend_attributes"
"""An attribute of calls that must not be inlined, neither here nor by XLA, which reads it."""


def composites_to_calls(module: Any, *, kept: Iterable[str] = ()) -> None:
    """Replace composites by calls of their decompositions, except those with names in ``kept``.

    Shape refinement inlines calls, but leaves composites alone.
    """
    passes = f"stablehlo-legalize-composite-to-call{{except={','.join(kept)}}}"
    run_passes(module, f"func.func({passes})")


def inline_composites(module: Any) -> None:
    """Inline into ``@main`` the decompositions of its composites and the functions that it calls.

    Composites that stand for operations of CHLO in portable artifacts stay composites, because XLA has better
    forms of these operations than their decompositions.
    """
    kept = {name for op in operations(module, "stablehlo.composite") if (name := _chlo_name(op))}
    composites_to_calls(module, kept=sorted(kept))
    functions = {ir.StringAttr(op.attributes["sym_name"]).value: op for op in module.body.operations}
    while calls := [op for op in operations(functions["main"], "func.call") if KEPT not in op.attributes]:
        for call in calls:
            callee = functions[ir.FlatSymbolRefAttr(call.attributes["callee"]).value]
            _inline(call, callee.entry_block)
    _erase_unused_functions(module)


def restore_chlo(module: Any) -> None:
    """Replace the composites in ``@main`` that are named after operations of CHLO by these operations."""
    for op in list(main_function(module).entry_block.operations):
        name = _chlo_name(op)
        if name is not None:
            given = (
                ir.DictAttr(op.attributes["composite_attributes"])
                if "composite_attributes" in op.attributes
                else []
            )
            made = ir.Operation.create(
                name,
                results=[result.type for result in op.operation.results],
                operands=list(op.operands),
                attributes={one.name: one.attr for one in given},
                loc=op.location,
                ip=ir.InsertionPoint(op),
            )
            for old, new in zip(op.operation.results, made.results, strict=True):
                old.replace_all_uses_with(new)
            op.operation.erase()
    _erase_unused_functions(module)


def _chlo_name(op: Any) -> str | None:
    if op.operation.name != "stablehlo.composite":
        return None
    name = ir.StringAttr(op.attributes["name"]).value
    return name if name.startswith("chlo.") else None


def _erase_unused_functions(module: Any) -> None:
    run_passes(module, "symbol-dce")


def _inline(call: Any, body: Any) -> None:
    """Replace ``call`` by copies of the operations of ``body``."""
    values = dict(zip(body.arguments, call.operands, strict=True))
    for op in body.operations:
        if op.operation.name == "func.return":
            for old, new in zip(call.operation.results, op.operands, strict=True):
                old.replace_all_uses_with(values.get(new, new))
        else:
            made = op.operation.clone(ir.InsertionPoint(call))
            made.location = call.location  # names the operator, so that profiles can tell what runs
            _rewire(made, values)
            values.update(zip(op.operation.results, made.results, strict=True))
    call.operation.erase()


def _rewire(op: Any, values: Mapping[Any, Any]) -> None:
    """Replace operands of an operation, and of those in its regions, that are keys of ``values``."""
    for position, operand in enumerate(op.operands):
        if operand in values:
            op.operands[position] = values[operand]
    for region in op.regions:
        for block in region:
            for inner in block:
                _rewire(inner.operation, values)


def fold_reshapes(module: Any) -> None:
    """Merge consecutive reshapes in ``@main`` into one, and bypass those that do not change the shape."""
    for op in list(main_function(module).entry_block.operations):
        if op.operation.name != "stablehlo.reshape":
            continue
        source = op.operands[0]
        while _makes(source) == "stablehlo.reshape":
            source = source.owner.operands[0]
        result = op.operation.results[0]
        if source.type == result.type:
            result.replace_all_uses_with(source)
        else:
            op.operation.operands[0] = source


def _makes(value: Any) -> str:
    """Return the name of the operation that computes a value; empty for an argument."""
    return "" if isinstance(value.owner, ir.Block) else str(value.owner.name)
