"""Symbolic shapes as data: entries are ints or expressions such as ``"s0"`` and ``"2*s0 + 1"``.

Relations between symbols are conditions in Python syntax, such as ``"s0 % 2 == 0"``. Binding symbols to
a call's shapes and evaluating expressions need neither torch nor SymPy.
"""

from __future__ import annotations

import ast
import functools
import operator
import re
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
_COMPARISONS: dict[type, Callable[[int, int], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_FUNCTIONS: dict[str, Callable[..., int]] = {
    "FloorDiv": operator.floordiv,
    "CleanDiv": operator.floordiv,
    "Mod": operator.mod,
    "PythonMod": operator.mod,
    "Max": max,
    "Min": min,
    "max": max,
    "min": min,
}


_NO_VALUE = (SyntaxError, KeyError, TypeError, ArithmeticError, ValueError, RecursionError, MemoryError)


def evaluate(expression: int | str, symbols: Mapping[str, int]) -> int:
    """Return the value of a dimension.

    Raises :class:`ArtifactError` if ``expression`` cannot be evaluated, and :class:`InputMismatch` if it
    divides by a symbol that is 0.
    """
    if isinstance(expression, int):
        return expression
    try:
        return _value(_parsed(expression), symbols)
    except ZeroDivisionError:
        raise InputMismatch(f"the dimension {expression} divides by 0 with {dict(symbols)}") from None
    except _NO_VALUE as error:
        raise ArtifactError(f"cannot evaluate the dimension {expression!r} with {dict(symbols)}") from error


def holds(relation: str, symbols: Mapping[str, int]) -> bool:
    """Whether the sizes satisfy ``relation``; a relation that divides by 0 does not hold.

    Raises :class:`ArtifactError` if ``relation`` cannot be evaluated.
    """
    try:
        return _truth(_parsed(relation), symbols)
    except ZeroDivisionError:
        return False
    except _NO_VALUE as error:
        raise ArtifactError(f"cannot evaluate the relation {relation!r} with {dict(symbols)}") from error


def _truth(node: ast.AST, symbols: Mapping[str, int]) -> bool:
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        left, right = (_value(one, symbols) for one in (node.left, node.comparators[0]))
        return _COMPARISONS[type(node.ops[0])](left, right)
    if isinstance(node, ast.BoolOp):
        found = [_truth(part, symbols) for part in node.values]
        return all(found) if isinstance(node.op, ast.And) else any(found)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return not _truth(node.operand, symbols)
    raise SyntaxError(ast.dump(node))


def is_condition(text: str) -> bool:
    """Whether ``text`` is a condition that :func:`holds` can evaluate."""
    try:
        return _is_condition(_parsed(text))
    except _NO_VALUE:
        return False


def _is_condition(node: ast.AST) -> bool:
    if isinstance(node, ast.Compare):
        known = len(node.ops) == 1 and type(node.ops[0]) in _COMPARISONS
        return known and all(map(_is_arithmetic, (node.left, *node.comparators)))
    if isinstance(node, ast.BoolOp):
        return all(map(_is_condition, node.values))
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not) and _is_condition(node.operand)


def _is_arithmetic(node: ast.AST) -> bool:
    """Whether :func:`_value` can evaluate ``node``."""
    match node:
        case ast.Constant(value=value):
            return type(value) is int
        case ast.Name():
            return True
        case ast.BinOp(left=left, op=op, right=right):
            return type(op) in _OPERATORS and _is_arithmetic(left) and _is_arithmetic(right)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _is_arithmetic(operand)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
            return name in _FUNCTIONS and all(map(_is_arithmetic, args))
    return False


def names_in(expression: str) -> set[str]:
    """Return the symbols in a dimension; none if it is not an expression (:func:`evaluate` refuses it)."""
    try:
        tree = _parsed(expression)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} - _FUNCTIONS.keys()


@functools.lru_cache(maxsize=1024)
def _parsed(text: str) -> ast.AST:
    """Return the syntax tree of an expression; cached, as each call of a program evaluates the same few."""
    return ast.parse(text, mode="eval").body


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
    declared: Sequence[tuple[str, Shape]],
    found: Sequence[Sequence[int]],
    ranges: Mapping[str, Range],
    relations: Sequence[str] = (),
    reasons: Mapping[str, str] | None = None,
) -> dict[str, int]:
    """Return the values of the symbols for a call with the shapes ``found``.

    ``declared`` has a pair ``(name, shape)`` for each input. A symbol's value follows from any dimension
    that is linear in it, such as ``"4*s0 + 1"``. Raises :class:`InputMismatch`, naming the input, for a wrong
    rank or size, for a symbol that would need two values or a fraction, for a value out of its range, and
    for sizes that break one of ``relations``. The message gives the relation's reason if ``reasons`` has one.
    """
    symbols: dict[str, int] = {}
    for (name, shape), actual in zip(declared, found, strict=True):
        if len(shape) != len(actual):
            raise InputMismatch(f"{name} has {len(actual)} dimensions; expected {len(shape)}: {_text(shape)}")
        for want, have in zip(shape, actual, strict=True):
            symbol, scale, offset = _linear(want)
            if not symbol:
                continue
            value, rest = divmod(have - offset, scale)
            if rest:
                raise InputMismatch(
                    f"{name} has shape {tuple(actual)}; expected {_text(shape)}: "
                    f"{have} is not {want} for any {symbol}"
                )
            if symbols.setdefault(symbol, value) != value:
                raise InputMismatch(
                    f"{name} has shape {tuple(actual)}; "
                    f"expected {_text(shape)} with {symbol} = {symbols[symbol]}"
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
    for relation in relations:
        if not holds(relation, symbols):
            why, told = (reasons or {}).get(relation), _broken(relation, declared, found)
            if why is None:
                raise InputMismatch(told, hint=_BROKEN_HINT)
            raise InputMismatch(f"{told}: {why}", hint="give other sizes, or export again for these")
    return symbols


_BROKEN_HINT = "export again for these sizes, or write the model so that it does the same for all sizes"


def _broken(relation: str, declared: Sequence[tuple[str, Shape]], found: Sequence[Sequence[int]]) -> str:
    """Describe how the shapes ``found`` break ``relation``, with the names of inputs in place of symbols."""
    places: dict[str, str] = {}
    given = []
    for (name, shape), actual in zip(declared, found, strict=True):
        for axis, dim in enumerate(shape):
            if isinstance(dim, str):
                places.setdefault(dim, f"{name}.shape[{axis}]")
        if names_in(relation) & {symbol for dim in shape for symbol in names_in(str(dim))}:
            given.append(f"{name} has shape {tuple(actual)}")
    told = re.sub(r"\b[A-Za-z_]\w*", lambda match: places.get(match[0], match[0]), relation)
    return f"{'; '.join(given)}; the program was made for sizes with {told}"


def _linear(expression: int | str) -> tuple[str, int, int]:
    """Return ``(symbol, scale, offset)`` of ``scale * symbol + offset``; symbol ``""`` for anything else."""
    if isinstance(expression, int):
        return "", 0, expression
    try:
        symbol, scale, offset = _linear_parts(ast.parse(expression, mode="eval").body)
    except SyntaxError:
        return "", 0, 0
    return (symbol, scale, offset) if scale else ("", 0, offset)


def _linear_parts(node: ast.AST) -> tuple[str, int, int]:
    """Return ``(symbol, scale, offset)`` of a parsed expression; raise SyntaxError if it is not linear."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return "", 0, node.value
    if isinstance(node, ast.Name):
        return node.id, 1, 0
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        symbol, scale, offset = _linear_parts(node.operand)
        return symbol, -scale, -offset
    if isinstance(node, ast.BinOp):
        left, a, b = _linear_parts(node.left)
        right, c, d = _linear_parts(node.right)
        if not left or not right or left == right:
            if isinstance(node.op, ast.Add):
                return left or right, a + c, b + d
            if isinstance(node.op, ast.Sub):
                return left or right, a - c, b - d
            if isinstance(node.op, ast.Mult) and not a * c:
                return left or right, a * d + b * c, b * d
    raise SyntaxError(ast.dump(node))


def _text(shape: Shape) -> str:
    return "[" + ", ".join(map(str, shape)) + "]"


def is_static(shapes: Sequence[Any]) -> bool:
    return all(isinstance(dim, int) for shape in shapes for dim in shape)
