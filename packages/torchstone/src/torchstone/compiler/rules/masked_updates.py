"""Capture rules for masked writes, for derivatives that are traced without the Python dispatcher."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..operators import masked_updates
from .registry import capture_rule


def _in_place(form: Callable[..., Any]) -> Callable[..., Any]:
    def write(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        result = form(self, *args, **kwargs)
        return result if result is NotImplemented else self.copy_(result)

    return write


capture_rule(torch.index_put, torch.Tensor.index_put)(masked_updates.index_put)
capture_rule(torch.index_fill, torch.Tensor.index_fill)(masked_updates.index_fill)
capture_rule(torch.index_put_, torch.Tensor.index_put_)(_in_place(masked_updates.index_put))
capture_rule(torch.Tensor.index_fill_)(_in_place(masked_updates.index_fill))
