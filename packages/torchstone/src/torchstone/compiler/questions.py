"""The question that a check asks about one call of a graph; :mod:`.checks` turns it into nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Question:
    """The question whether all of ``holds(**operands)`` is true; if not, ``text`` says what is wrong.

    ``operands`` has nodes in place of tensors. ``holds`` computes with PyTorch's operators, and
    returns None if there is nothing to ask.
    """

    text: str
    holds: Callable[..., torch.Tensor | None]
    operands: Mapping[str, Any]
