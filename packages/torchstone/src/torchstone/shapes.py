"""Symbolic shapes as data: entries are ints or expressions such as ``"s0"`` and ``"2*s0 + 1"``.

Binding them to a call's shapes and evaluating expressions need neither torch
nor SymPy.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .errors import ArtifactError, InputMismatch

Shape = Sequence[int | str]
Range = tuple[int, int | None]

_OPERATORS: dict[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_FUNCTIONS: dict[str, Callable[..., int]] = {
    "FloorDiv": operator.floordiv,
    "CleanDiv": operator.floordiv,
    "Mod": operator.mod,
    "PythonMod": operator.mod,
    "Max": max,
    "Min": min,
}


def evaluate(expression: int | str, symbols: Mapping[str, int]) -> int:
    """The value of a dimension. Raises :class:`ArtifactError` for what is no such expression."""
    if isinstance(expression, int):
        return expression
    try:
        return _value(ast.parse(expression, mode="eval").body, symbols)
    except (SyntaxError, KeyError, TypeError, ZeroDivisionError) as error:
        raise ArtifactError(f"cannot evaluate the dimension {expression!r} with {dict(symbols)}") from error


def _value(node: ast.AST, symbols: Mapping[str, int]) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.Name):
        return symbols[node.id]
    if isinstance(node, ast.BinOp):
        return _OPERATORS[type(node.op)](_value(node.left, symbols), _value(node.right, symbols))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand, symbols)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        return _FUNCTIONS[node.func.id](*(_value(argument, symbols) for argument in node.args))
    raise SyntaxError(ast.dump(node))


def bind(
    declared: Sequence[tuple[str, Shape]], found: Sequence[Sequence[int]], ranges: Mapping[str, Range]
) -> dict[str, int]:
    """Symbols from a call's shapes: ``declared`` are ``(name, shape)`` pairs, ``found`` actual shapes.

    Raises :class:`InputMismatch` naming the input for a wrong rank, size, a
    symbol that would need two values, or a value out of its range.
    """
    symbols: dict[str, int] = {}
    for (name, shape), actual in zip(declared, found, strict=True):
        if len(shape) != len(actual):
            raise InputMismatch(f"{name} has {len(actual)} dimensions; expected {len(shape)}: {_text(shape)}")
        for want, have in zip(shape, actual, strict=True):
            if isinstance(want, str) and want.isidentifier() and symbols.setdefault(want, have) != have:
                raise InputMismatch(
                    f"{name} has shape {tuple(actual)}; expected {_text(shape)} with {want} = {symbols[want]}"
                )
    for symbol, value in symbols.items():
        low, high = ranges.get(symbol, (0, None))
        if value < low or (high is not None and value > high):
            raise InputMismatch(f"dimension {symbol} is {value}; the program allows {low} to {high or 'any'}")
    for (name, shape), actual in zip(declared, found, strict=True):
        if any(evaluate(want, symbols) != have for want, have in zip(shape, actual, strict=True)):
            raise InputMismatch(
                f"{name} has shape {tuple(actual)}; expected {_text(shape)}",
                hint="export again for this shape, or with dynamic_shapes=",
            )
    return symbols


def _text(shape: Shape) -> str:
    return "[" + ", ".join(map(str, shape)) + "]"


def is_static(shapes: Sequence[Any]) -> bool:
    return all(isinstance(dim, int) for shape in shapes for dim in shape)
