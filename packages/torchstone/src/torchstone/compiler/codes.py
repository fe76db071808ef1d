"""Integers that stand for words: reductions, norms and modes. PyTorch's kernels check few of them.

Each kernel treats other integers in its own way, and no shape function checks them.
"""

from __future__ import annotations

from typing import Any

from ..torch_internals.operators import OpOverload, schema_of

CODES: dict[str, tuple[str, ...]] = {
    "reduction": ("none", "mean", "sum"),
    "normalization": ("none", "by the root of the size", "by the size"),
    "interpolation_mode": ("bilinear", "nearest", "bicubic"),
    "padding_mode": ("zeros", "border", "reflection"),
    "mode": ("sum", "mean", "max"),
}
"""The meaning of 0, 1, … for parameters of type ``int``, by name. ``mode`` is that of ``embedding_bag``."""


def unknown_code(overload: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Return why a call cannot be lowered, if one of its integers stands for no word; None if all do."""
    for place, argument in enumerate(schema_of(overload).arguments):
        names = CODES.get(argument.name)
        if names is None or str(argument.type) != "int":
            continue
        given = args[place] if place < len(args) else kwargs.get(argument.name, argument.default_value)
        if type(given) is int and not 0 <= given < len(names):
            known = ", ".join(f"{number} ({name})" for number, name in enumerate(names))
            return f"{argument.name}={given} is unknown: use one of {known}"
    return None
