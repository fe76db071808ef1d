"""Nested arguments and results, described without torch.

A tree description is JSON: ``{"leaf": i}`` (the i-th tensor), ``{"none": null}``,
``{"dim": "s0"}`` (a size that depends on the inputs' shapes),
``{"const": value}``, ``{"tuple": [...]}``, ``{"list": [...]}``,
``{"dict": {"keys": [...], "values": [...]}}`` or ``{"record": {"type": name, "keys":
[...], "values": [...]}}`` for named tuples and registered classes (a model's
output object, say). Reading one never imports the class: :func:`unflatten`
gives a :class:`Record`, a dict with attributes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .errors import InputMismatch
from .shapes import evaluate

Tree = dict[str, Any]


class Record(dict[str, Any]):
    """A dict whose entries are attributes too; ``type_name`` says what it was in the model."""

    type_name: str = ""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"this {self.type_name or 'record'} has no {name!r}") from None


def flatten(tree: Tree, value: Any, path: str = "inputs") -> dict[int, Any]:
    """The leaves of ``value`` by index.

    Raises :class:`InputMismatch` that names the place where ``value`` differs
    from the description, what was expected there and what was found.
    """
    ((kind, content),) = tree.items()
    if kind == "leaf":
        if value is None:
            raise InputMismatch(f"{path} is None; the program was exported with a tensor there")
        return {content: value}
    if kind == "none":
        if value is not None:
            raise InputMismatch(f"{path} is {_kind(value)}; the program was exported with None there")
        return {}
    if kind == "const":
        if value != content:
            raise InputMismatch(
                f"{path} is {value!r}; the program was exported for {content!r}",
                hint="export again with the value that you need: Python values are part of the program",
            )
        return {}
    if kind == "dim":
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
        leaves.update(flatten(child, part, name))
    return leaves


def unflatten(tree: Tree, leaves: Sequence[Any], symbols: Mapping[str, int] | None = None) -> Any:
    """The nested value of a description: ``leaves`` at their places, sizes computed from ``symbols``."""
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
    record = Record(zip(content["keys"], values, strict=True))
    record.type_name = content["type"]
    return record


def leaf_paths(tree: Tree, path: str) -> dict[int, str]:
    """A readable name for each leaf: ``x``, ``batch['mask']``, …"""
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


def _kind(value: Any) -> str:
    return f"a {type(value).__name__}"


def _sequence(content: Sequence[Tree], value: Any, path: str) -> Sequence[Any]:
    if not isinstance(value, (tuple, list)):
        raise InputMismatch(f"{path} is {_kind(value)}; expected a sequence of {len(content)}")
    if len(value) != len(content):
        raise InputMismatch(f"{path} has {len(value)} entries; expected {len(content)}")
    return value


def _mapping(content: Mapping[str, Any], value: Any, path: str) -> list[Any]:
    if not isinstance(value, Mapping):
        raise InputMismatch(f"{path} is {_kind(value)}; expected a dict with {content['keys']}")
    missing = [key for key in content["keys"] if key not in value]
    unknown = [key for key in value if key not in content["keys"]]
    if missing or unknown:
        raise InputMismatch(f"{path} lacks {missing} and has unknown {unknown}; expected {content['keys']}")
    return [value[key] for key in content["keys"]]


def _record(content: Mapping[str, Any], value: Any, path: str) -> list[Any]:
    if isinstance(value, Mapping):
        return _mapping(content, value, path)
    missing = [key for key in content["keys"] if not hasattr(value, key)]
    if missing:
        raise InputMismatch(f"{path} is {_kind(value)} without {missing}; expected a {content['type']}")
    return [getattr(value, key) for key in content["keys"]]
