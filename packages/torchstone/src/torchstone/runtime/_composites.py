"""Composites of a parsed module: their decompositions in their places, and CHLO's operations again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ._jaxlib import ir, main_function, operations, run_passes

KEPT = "mhlo.frontend_attributes"
"""An attribute of calls that are to stay calls, here and in XLA, which reads of it what it may not inline."""


def composites_to_calls(module: Any, *, kept: Iterable[str] = ()) -> None:
    """Call decompositions instead of composites: refinement inlines calls, and leaves composites alone."""
    passes = f"stablehlo-legalize-composite-to-call{{except={','.join(kept)}}}"
    run_passes(module, f"func.func({passes})")


def inline_composites(module: Any) -> None:
    """Put the decompositions of composites, and what ``@main`` calls, into ``@main``.

    Operations of CHLO that are composites in portable artifacts stay what they are: XLA has better
    forms of them than their decompositions.
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
    """Operations of CHLO in place of composites of their names, in ``@main``."""
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
    """Copies of the operations of ``body`` in place of ``call``."""
    values = dict(zip(body.arguments, call.operands, strict=True))
    for op in body.operations:
        if op.operation.name == "func.return":
            for old, new in zip(call.operation.results, op.operands, strict=True):
                old.replace_all_uses_with(values.get(new, new))
        else:
            made = op.operation.clone(ir.InsertionPoint(call))
            made.location = call.location  # of the operator: what runs can be told from it
            _rewire(made, values)
            values.update(zip(op.operation.results, made.results, strict=True))
    call.operation.erase()


def _rewire(op: Any, values: Mapping[Any, Any]) -> None:
    """Let an operation, and those in its regions, read ``values`` in place of their keys."""
    for position, operand in enumerate(op.operands):
        if operand in values:
            op.operands[position] = values[operand]
    for region in op.regions:
        for block in region:
            for inner in block:
                _rewire(inner.operation, values)


def fold_reshapes(module: Any) -> None:
    """One reshape in place of several in a row, and none where the shape stays, in ``@main``."""
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
    """The name of the operation that makes a value; empty for an argument."""
    return "" if isinstance(value.owner, ir.Block) else str(value.owner.name)
