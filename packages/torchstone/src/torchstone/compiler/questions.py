"""What a check asks about one call of a graph, before it is made of nodes (:mod:`.checks`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Question:
    """Whether ``holds(**operands)`` is all true; where it is not, ``text`` says what is wrong.

    ``operands`` hold nodes for tensors. ``holds`` computes with PyTorch's operators; it
    returns None where there is nothing to ask.
    """

    text: str
    holds: Callable[..., torch.Tensor | None]
    operands: Mapping[str, Any]
