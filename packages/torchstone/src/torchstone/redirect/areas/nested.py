"""``torch.nested``: the constructors of strided nested tensors, which C code parses outside the modes."""

from __future__ import annotations

from typing import Any

import torch

from ...torch_internals import dispatch
from ..mode import dispatched
from ..rows import Row
from ..scope import Scope


def _around(original: Any) -> Any:
    def in_c(*args: Any, **kwargs: Any) -> Any:
        with dispatch.without_function_modes():
            return original(*args, **kwargs)

    def implementation(scope: Scope, data: Any, *args: Any, **kwargs: Any) -> Any:
        named = dict(zip(("dtype", "device", "layout"), args, strict=False)) | kwargs
        if isinstance(data, torch.Tensor) or named.get("layout") is torch.jagged:
            return original(data, **named)  # written in Python, on top of calls that are mapped
        return dispatched(scope, in_c, (data,), named)

    return implementation


ROWS = tuple(
    Row(f"torch.nested.{name}", "wraps", "the device is mapped", around=_around)
    for name in ("nested_tensor", "as_nested_tensor")
)
