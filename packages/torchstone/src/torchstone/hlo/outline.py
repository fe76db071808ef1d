"""Splits ``main`` into functions, one for each module of the model and named after it, that ``main`` calls.

The names of locations (``layers.0.fc/aten.addmm.default/addmm``) tell which module an operation belongs to.
Only consecutive operations are put into one function, so the order of operations does not change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from ._mlir import func, ir, passmanager

LEAST = 2
"""The minimum number of operations in a function; fewer stay where they are."""


def outline(module: Any) -> None:
    """Split ``main`` of a parsed StableHLO module in place; the module's context must be the current one."""
    named = [one for one in module.body.operations if "sym_name" in one.attributes]
    functions = {ir.StringAttr(one.attributes["sym_name"]).value: one for one in named}
    main = functions["main"].regions[0].blocks[0]
    _part_constants(main)
    _outline(module, main, "", Counter(functions.keys()))
    passmanager.PassManager.parse("builtin.module(func.func(cse))").run(module.operation)
    module.operation.verify()


def _part_constants(block: Any) -> None:
    """Give each user of a constant its own copy, right before it, so that functions share no constants."""
    for constant in [one for one in block.operations if one.operation.name == _CONSTANT]:
        for use in list(constant.results[0].uses):
            with ir.InsertionPoint(_in_block(use.owner, block)):
                own = constant.operation.clone()
            use.owner.operation.operands[use.operand_number] = own.operation.results[0]
        constant.operation.erase()


def _in_block(operation: Any, block: Any) -> Any:
    """Return the operation of ``block`` that is ``operation`` or contains it in a region."""
    while operation.operation.block != block:
        operation = operation.operation.parent
    return operation


def _outline(module: Any, block: Any, path: str, names: Counter[str]) -> None:
    """Move each run of operations that belongs to one submodule of ``path`` into a function, recursively."""
    operations = [one.operation for one in block.operations][:-1]
    for part, run in _runs(operations, path):
        if part is not None and len(run) >= LEAST:
            inner = f"{path}.{part}" if path else part
            _outline(module, _function(module, run, inner, names), inner, names)


def _runs(operations: Sequence[Any], path: str) -> list[tuple[str | None, list[Any]]]:
    """Group consecutive operations by the next part of their paths after ``path``.

    The part is None for operations that belong to no submodule of ``path``.
    """
    parts = [_next_part(_path_of(one), path) for one in operations]
    for place in reversed(range(len(operations) - 1)):  # a constant belongs to its user, the next one
        if operations[place].name == _CONSTANT:
            parts[place] = parts[place + 1]
    grouped = groupby(zip(parts, operations, strict=True), key=itemgetter(0))
    return [(part, [one for _, one in pairs]) for part, pairs in grouped]


def _path_of(operation: Any) -> str:
    location = operation.location
    name = location.name_str if isinstance(location, ir.NameLoc) else ""
    return name.partition("/")[0] if name.count("/") >= 2 else ""


def _next_part(path: str, before: str) -> str | None:
    if before:
        if not path.startswith(f"{before}."):
            return None
        path = path.removeprefix(f"{before}.")
    return path.partition(".")[0] or None


def _function(module: Any, run: list[Any], path: str, names: Counter[str]) -> Any:
    """Move ``run`` into a new function, replace it by a call, and return the function's block."""
    for one in run:
        one.attributes[_MEMBER] = ir.UnitAttr.get()
    with ir.Location.name(path):
        taken = _taken(run)
        made = (value for one in run for value in one.results)
        returned = [value for value in made if not all(_is_member(use.owner) for use in value.uses)]
        types = [value.type for value in taken], [value.type for value in returned]
        symbol = path if not names[path] else f"{path}_{names[path]}"
        names[path] += 1
        with ir.InsertionPoint(module.body):
            function = func.FuncOp(symbol, ir.FunctionType.get(*types), visibility="private")
        block = function.add_entry_block()
        with ir.InsertionPoint(run[0]):
            call = func.CallOp(types[1], ir.FlatSymbolRefAttr.get(symbol), taken)
        for inside, outside in zip(block.arguments, taken, strict=True):
            _replace(outside, inside, _is_member)
        for outside, inside in zip(call.results, returned, strict=True):
            _replace(inside, outside, lambda user: not _is_member(user))
        with ir.InsertionPoint(block):
            end = func.ReturnOp(returned)
    for one in run:
        one.move_before(end.operation)
        del one.attributes[_MEMBER]
    return block


_MEMBER = "torchstone.outlined"
"""An attribute that marks the operations to move, because MLIR's bindings have no hashable identity."""


def _is_member(operation: Any) -> bool:
    """Whether an operation is to be moved, or is in a region of one that is."""
    while operation is not None:
        if _MEMBER in operation.operation.attributes:
            return True
        operation = operation.operation.parent
    return False


def _taken(run: Iterable[Any]) -> list[Any]:
    """Return the values that ``run`` uses but does not produce, each once, in the order of first use."""
    found: list[Any] = []

    def visit(operation: Any) -> Any:
        for value in operation.operands:
            owner = value.owner
            maker = owner.owner if isinstance(owner, ir.Block) else owner
            if not _is_member(maker) and value not in found:
                found.append(value)
        return ir.WalkResult.ADVANCE

    for one in run:
        one.walk(visit)
    return found


def _replace(old: Any, new: Any, chosen: Callable[[Any], bool]) -> None:
    """Replace ``old`` by ``new`` in those of its users for which ``chosen`` is true."""
    for use in [one for one in old.uses if chosen(one.owner)]:
        use.owner.operation.operands[use.operand_number] = new


_CONSTANT = "stablehlo.constant"
