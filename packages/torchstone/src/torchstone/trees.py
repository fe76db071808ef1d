"""Nested arguments and results, described without torch.

A tree description is JSON: ``{"leaf": i}`` (the i-th tensor), ``{"none": null}``,
``{"dim": "s0"}`` (a size that depends on the inputs' shapes),
``{"const": value}``, ``{"tuple": [...]}``, ``{"list": [...]}``,
``{"dict": {"keys": [...], "values": [...]}}`` or ``{"record": {"type": name, "keys":
[...], "values": [...]}}`` for registered classes (a model's output object, say). The
record of a named tuple also has ``"module"``, where its class lives.

Reading a description never imports a class. For a named tuple, :func:`unflatten` uses
the tuple's own class if the process has imported it already, and else makes an equal
class. All other records become a :class:`Record`.
"""

from __future__ import annotations

import re
import struct
import sys
from collections import deque, namedtuple
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from .errors import InputMismatch, described
from .shapes import evaluate

Tree = dict[str, Any]


class Record(dict[str, Any]):
    """A dict whose values can also be read as attributes or by position.

    ``type_name`` is the name of its class in the model.
    """

    type_name: str = ""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"this {self.type_name or 'record'} has no {name!r}") from None

    def __getitem__(self, key: Any) -> Any:
        return tuple(self.values())[key] if isinstance(key, (int, slice)) else super().__getitem__(key)


_PLAIN: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (bool, bool),
    (int, int.__int__),
    (float, float.__float__),
    (str, str.__str__),
)


def plain_constant(value: Any) -> Any:
    """Return ``value`` as descriptions store it: NumPy's float64 and members of enumerations become plain."""
    return next((plain(value) for base, plain in _PLAIN if isinstance(value, base)), value)


def flatten(
    tree: Tree, value: Any, path: str = "inputs", symbols: Mapping[str, int] | None = None
) -> dict[int, Any]:
    """Return the leaves of ``value`` by index; sizes in it are compared if ``symbols`` is given.

    Raises :class:`InputMismatch` where ``value`` differs from the description. The message
    names the place, what was expected there and what was found.
    """
    ((kind, content),) = tree.items()
    if kind == "leaf":
        if value is None:
            raise InputMismatch(f"{readable(path)} is None; the program was exported with a tensor there")
        return {content: value}
    if kind == "none":
        if value is not None:
            raise InputMismatch(
                f"{readable(path)} is {described(value)}; the program was exported with None there"
            )
        return {}
    if kind == "const":
        _check_constant(value, content, path)
        return {}
    if kind == "dim":
        if symbols is not None:
            _check_constant(value, evaluate(content, symbols), path)
        return {}
    if kind in ("tuple", "list"):
        children = _sequence(content, value, path)
        names = [f"{path}[{i}]" for i in range(len(content))]
    elif kind == "dict":
        children, names = _mapping(content, value, path), [f"{path}[{key!r}]" for key in content["keys"]]
        content = content["values"]
    else:
        children, names = _record(content, value, path), [f"{path}.{key}" for key in content["keys"]]
        content = content["values"]
    leaves: dict[int, Any] = {}
    for child, part, name in zip(content, children, names, strict=True):
        leaves.update(flatten(child, part, name, symbols))
    return leaves


def unflatten(tree: Tree, leaves: Sequence[Any], symbols: Mapping[str, int] | None = None) -> Any:
    """Return the nested value of a description, with ``leaves`` in place and sizes from ``symbols``."""
    ((kind, content),) = tree.items()
    if kind == "leaf":
        return leaves[content]
    if kind == "dim":
        return evaluate(content, symbols or {})
    if kind in ("none", "const"):
        return content
    if kind in ("tuple", "list"):
        parts = [unflatten(child, leaves, symbols) for child in content]
        return tuple(parts) if kind == "tuple" else parts
    values = [unflatten(child, leaves, symbols) for child in content["values"]]
    if kind == "dict":
        return dict(zip(content["keys"], values, strict=True))
    if "module" in content:
        cls = _loaded_tuple(content) or _equal_tuple(content["type"], tuple(content["keys"]))
        return _made(cls, values)
    record = Record(zip(content["keys"], values, strict=True))
    record.type_name = content["type"]
    return record


def field_names(cls: type) -> tuple[str, ...] | None:
    """Return the fields of a named tuple's class, also of ``torch.return_types``; None for other classes."""
    if not issubclass(cls, tuple):
        return None
    names = getattr(cls, "_fields", None)
    if names is None and hasattr(cls, "n_sequence_fields"):
        names = getattr(cls, "__match_args__", None)
    return None if names is None else tuple(names)


def _loaded_tuple(content: Mapping[str, Any]) -> type | None:
    """Return the class that a named tuple's description names, if it is loaded and has the same fields."""
    found: Any = sys.modules.get(content["module"])
    for name in content["type"].split("."):
        found = getattr(found, name, None)
    usable = isinstance(found, type) and field_names(found) == tuple(content["keys"])
    return found if usable else None


@cache
def _equal_tuple(name: str, fields: tuple[str, ...]) -> type[tuple[Any, ...]]:
    """Return a named tuple's class with these fields, in place of one that is not loaded."""
    return namedtuple(name.rpartition(".")[2], fields, rename=True)


def _made(cls: Any, values: list[Any]) -> Any:
    return cls._make(values) if hasattr(cls, "_make") else cls(values)


_POSITIONAL, _KEYWORDS = "inputs[0]", "inputs[1]"
"""The paths of the two kinds of arguments in the tree of a program's inputs."""


def readable(path: str) -> str:
    """Return the name of a path for messages: ``input 1`` for ``inputs[0][1]``, and so on.

    ``inputs[0][1]`` is positional argument 1, ``inputs[1]['mask']`` the keyword argument ``mask``.
    """
    positional = re.fullmatch(r"inputs\[0\]\[(\d+)\](.*)", path)
    if positional:
        return f"input {positional[1]}{positional[2]}"
    keyword = re.fullmatch(r"inputs\[1\]\['(\w+)'\](.*)", path)
    return f"input {keyword[1]!r}{keyword[2]}" if keyword else path


def leaf_paths(tree: Tree, path: str) -> dict[int, str]:
    """Return a readable name for each leaf: ``x``, ``batch['mask']``, …"""
    ((kind, content),) = tree.items()
    if kind == "leaf":
        return {content: path}
    if kind in ("none", "const", "dim"):
        return {}
    if kind in ("tuple", "list"):
        pairs = [(child, f"{path}[{i}]") for i, child in enumerate(content)]
    elif kind == "dict":
        pairs = [(c, f"{path}[{k!r}]") for k, c in zip(content["keys"], content["values"], strict=True)]
    else:
        pairs = [(c, f"{path}.{k}") for k, c in zip(content["keys"], content["values"], strict=True)]
    return {index: name for child, at in pairs for index, name in leaf_paths(child, at).items()}


def _check_constant(value: Any, wanted: Any, path: str) -> None:
    """Raise unless both have the same type and bits: True, 1 and 1.0 differ, and so do 0.0 and -0.0."""
    given = plain_constant(value)
    if type(given) is not type(wanted) or not _same_bits(given, wanted):
        raise InputMismatch(
            f"{readable(path)} is {value!r}; the program was exported for {wanted!r}",
            hint="export again with the value that you need: Python values are part of the program",
        )


def _same_bits(one: Any, other: Any) -> bool:
    if isinstance(one, float):
        return struct.pack("d", one) == struct.pack("d", other) or (one != one and other != other)
    return bool(one == other)


def _sequence(content: Sequence[Tree], value: Any, path: str) -> Sequence[Any]:
    if not isinstance(value, (tuple, list, deque)):
        raise InputMismatch(f"{readable(path)} is {described(value)}; expected a sequence of {len(content)}")
    if len(value) != len(content):
        if path == _POSITIONAL:
            raise InputMismatch(
                f"the program takes {len(content)} positional argument(s), and {len(value)} were given"
            )
        raise InputMismatch(f"{readable(path)} has {len(value)} entries; expected {len(content)}")
    return value


def _mapping(content: Mapping[str, Any], value: Any, path: str) -> list[Any]:
    if not isinstance(value, Mapping):
        raise InputMismatch(f"{readable(path)} is {described(value)}; expected a dict with {content['keys']}")
    missing = [key for key in content["keys"] if key not in value]
    unknown = [key for key in value if key not in content["keys"]]
    if missing or unknown:
        where = "the keyword arguments" if path == _KEYWORDS else readable(path)
        raise InputMismatch(f"{where}: missing {missing}, unknown {unknown}; expected {content['keys']}")
    return [value[key] for key in content["keys"]]


def _record(content: Mapping[str, Any], value: Any, path: str) -> list[Any]:
    if isinstance(value, Mapping):
        return _mapping(content, value, path)
    if "module" in content and isinstance(value, _equal_tuple(content["type"], tuple(content["keys"]))):
        return list(value)  # by position: the class renames fields that are not identifiers
    missing = [key for key in content["keys"] if not hasattr(value, key)]
    if missing:
        raise InputMismatch(
            f"{readable(path)} is {described(value)} without {missing}; expected a {content['type']}"
        )
    return [getattr(value, key) for key in content["keys"]]
