"""Operators: their classes and what their schemas say."""

from __future__ import annotations

from typing import Any

from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket

from .probing import Internal

__all__ = [
    "HigherOrderOperator",
    "OpOverload",
    "OpOverloadPacket",
    "overload_name",
    "overload_of_custom_operator",
    "schema_of",
    "schemas_named",
]

schemas_named = Internal("torch._C._jit_get_schemas_for_operator", "reading signatures of operators")


def schema_of(operator: Any) -> Any:
    """The schema of an overload: name, arguments, returns, whether it writes."""
    return operator._schema


def overload_name(overload: OpOverload) -> str:
    """``Tensor`` for ``aten.add.Tensor``."""
    return overload._overloadname


def overload_of_custom_operator(function: Any) -> OpOverload:
    """The overload that ``torch.library.custom_op`` made of a function."""
    found: OpOverload = function._opoverload
    return found
