"""``torch.export``: which composite operators it keeps whole, and how it overrides their expansion."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch._ops import _OpNamespace

from .operators import OpOverload
from .probing import Internal

_EXPORT = "exporting"
exported_program = Internal("torch.export.exported_program", _EXPORT)
override_expansions = Internal("torch.export.exported_program._override_composite_implicit_decomp", _EXPORT)
OVERRIDE, COLLECT = "_override_composite_implicit_decomp", "_collect_all_valid_cia_ops"
"""Functions of ``torch.export.exported_program``."""

_materialize = Internal("torch._export.utils._materialize_cpp_cia_ops", _EXPORT)
_collect_aten = Internal("torch._export.utils._collect_all_valid_cia_ops_for_aten_namespace", _EXPORT)
_is_preservable = Internal("torch._export.utils._is_preservable_cia_op", _EXPORT)


def composites() -> set[OpOverload]:
    """Every composite-implicit operator that can be kept whole, custom ones included.

    The same as PyTorch's own ``_collect_all_valid_cia_ops``, which asks the dispatcher for each namespace.
    """
    _materialize()
    found: set[Any] = set(_collect_aten())
    for name in torch.ops._dir:
        space = getattr(torch.ops, name)
        if name != "aten" and isinstance(space, _OpNamespace):
            found |= {one for packet in space for one in _overloads(space, packet) if _is_preservable(one)}
    return found


def _overloads(space: _OpNamespace, name: str) -> Iterator[OpOverload]:
    packet: Any = getattr(space, name)
    yield from packet.op_overloads()
