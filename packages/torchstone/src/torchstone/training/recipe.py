"""What a step consists of, as the user gave it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ..errors import TrainingError


@dataclass(frozen=True)
class Recipe:
    """The model, its optimizer and its loss."""

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    loss_fn: Callable[..., Any]

    def modules(self) -> Iterator[torch.nn.Module]:
        """The modules whose parameters and buffers belong to the step."""
        yield self.model
        if isinstance(self.loss_fn, torch.nn.Module):
            yield self.loss_fn

    def forward(self, batch: tuple[Any, ...]) -> tuple[torch.Tensor, Any]:
        """The loss, and everything that ``loss_fn`` returned."""
        if len(batch) == 1:
            result = self.loss_fn(self.model, batch[0])
        else:
            result = self.loss_fn(_called(self.model, batch[0]), batch[1])
        return loss_of(result), result


def _called(model: torch.nn.Module, inputs: Any) -> Any:
    if isinstance(inputs, Mapping):
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, (tuple, list)) else model(inputs)


def loss_of(result: Any) -> torch.Tensor:
    """The loss among what ``loss_fn`` returned: the result itself, its first item, or its ``loss``."""
    loss = result
    if isinstance(result, Mapping):
        loss = result.get("loss")
    elif isinstance(result, (tuple, list)):
        loss = result[0] if result else None
    if not isinstance(loss, torch.Tensor):
        raise TrainingError(
            f"loss_fn returned {_named(result)}, in which there is no loss",
            hint='return the loss, a tuple that begins with it, or a dict with the key "loss"',
        )
    if loss.numel() != 1 or loss.is_complex() or not loss.dtype.is_floating_point:
        raise TrainingError(
            f"the loss is a {loss.dtype} tensor of shape {list(loss.shape)}: a loss is one real number",
            hint="reduce it, with .mean() or .sum()",
        )
    if not loss.requires_grad:
        raise TrainingError(
            "the loss does not depend on a parameter that requires a gradient",
            hint="compute it from the model's outputs, outside of torch.no_grad(), and without .detach()",
        )
    return loss


def _named(value: Any) -> str:
    if value is None:
        return "None"
    return "a float" if isinstance(value, torch.SymFloat) else f"a {type(value).__name__}"
