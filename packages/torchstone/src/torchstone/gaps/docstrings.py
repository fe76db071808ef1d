"""Reading signatures from the first line of docstrings, which document C++ functions to users."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from .signatures import Parameter, Signature

_FIRST_LINE = re.compile(r"(?:\w+\.)*\w+\((?P<parameters>.*)\)(?: *->.*)?")


def docstring_signature(value: Any) -> Signature | None:
    """Return the signature in the first line of ``value``'s docstring; None if it is not valid Python."""
    text = getattr(value, "__doc__", None)
    found = _FIRST_LINE.fullmatch(text.strip().partition("\n")[0]) if isinstance(text, str) else None
    if found is None:
        return None
    try:
        tree = ast.parse(f"def _({found['parameters']}): ...")
    except SyntaxError:
        return None
    (function,) = tree.body
    assert isinstance(function, ast.FunctionDef)
    parameters = list(_parameters(function.args))
    if hasattr(value, "__objclass__"):  # the docstring of a method leaves self out
        parameters.insert(0, Parameter("self", "positional or keyword"))
    return Signature(tuple(parameters))


def _parameters(arguments: ast.arguments) -> Iterator[Parameter]:
    plain = [*arguments.posonlyargs, *arguments.args]
    missing = [None] * (len(plain) - len(arguments.defaults))
    for one, default in zip(plain, [*missing, *arguments.defaults], strict=True):
        yield _parameter(one, "positional or keyword", default)
    if arguments.vararg is not None:
        yield _parameter(arguments.vararg, "variadic positional", None)
    for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield _parameter(one, "keyword-only", default)


def _parameter(one: ast.arg, kind: str, default: ast.expr | None) -> Parameter:
    return Parameter(one.arg, kind, None if default is None else ast.unparse(default))


def as_documented(wanted: Signature, shown: Signature | None, ours: Signature) -> Signature:
    """Return ``wanted`` with the names, kinds and defaults of ``ours`` that ``shown`` confirms."""
    if shown is None:
        return wanted
    own = {one.name: one for one in ours.parameters}
    documented = {one.name: one for one in shown.parameters}
    known = {one.name for one in wanted.parameters}
    found = []
    for index, one in enumerate(wanted.parameters):
        other = shown.parameters[index].name if index < len(shown.parameters) else one.name
        if one.name not in own and other in own and other not in known:
            one = replace(one, name=other)
        found.append(_agreed(one, documented.get(one.name, one), own.get(one.name)))
    return Signature(tuple(found), wanted.returns)


def _agreed(wanted: Parameter, shown: Parameter, ours: Parameter | None) -> Parameter:
    """Return ``wanted`` with the kind and the default of ``ours``, if these are documented."""
    if ours is None:
        return wanted
    if ours.kind == shown.kind == "keyword-only":
        wanted = replace(wanted, kind=ours.kind)
    if any(_same(ours.default, one.default) for one in (wanted, shown)):
        wanted = replace(wanted, default=ours.default)
    return wanted


def _same(ours: str | None, theirs: str | None) -> bool:
    """Whether two defaults mean the same, such as a list and a tuple of the same numbers."""
    return ours is not None and theirs is not None and _value(ours) == _value(theirs)


def _value(text: str) -> Any:
    try:
        found = ast.literal_eval(text)
    except ValueError:
        return text
    return tuple(found) if isinstance(found, list) else found
