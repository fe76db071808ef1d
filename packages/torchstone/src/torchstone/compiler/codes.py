"""Integers that stand for words: reductions, norms and modes. PyTorch's kernels check few of them.

What a kernel does with another integer differs from kernel to kernel, and no shape function asks.
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
"""Parameters of type ``int`` by name, and what 0, 1, … mean. A ``mode`` is that of bags of embeddings."""


def unknown_code(overload: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Why a call cannot be lowered because an integer in it stands for nothing; None if none does."""
    for place, argument in enumerate(schema_of(overload).arguments):
        names = CODES.get(argument.name)
        if names is None or str(argument.type) != "int":
            continue
        given = args[place] if place < len(args) else kwargs.get(argument.name, argument.default_value)
        if type(given) is int and not 0 <= given < len(names):
            known = ", ".join(f"{number} ({name})" for number, name in enumerate(names))
            return f"{argument.name}={given} is unknown: use one of {known}"
    return None
