"""The parts of a step, as the user gave them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from numbers import Real
from types import NoneType
from typing import Any, Literal, get_args

import torch
from torch.optim.swa_utils import AveragedModel

from ..compiler.rules import declared_bounds
from ..errors import TrainingError, described
from .batch import flatten
from .buckets import Reduction, has_rows, reduced, with_loss
from .numbers import Number

NonFinite = Literal["update", "skip", "raise"]
"""What a step does if the loss or a gradient is infinite or NaN."""

_TYPES: dict[str, tuple[str, tuple[type, ...]]] = {
    "model": ("an nn.Module", (torch.nn.Module,)),
    "optimizer": ("a torch.optim.Optimizer", (torch.optim.Optimizer,)),
    "loss_fn": ("a function", (Callable,)),  # type: ignore[dict-item]
    "scaler": ("a torch.amp.GradScaler", (torch.amp.GradScaler, NoneType)),
    "average": ("an AveragedModel of torch.optim.swa_utils", (AveragedModel, NoneType)),
}
"""What each argument must be, in words and as types."""


@dataclass
class Recipe:
    """The model, its optimizer and its loss, and what is done to gradients; see :func:`~.compile_step`."""

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    loss_fn: Callable[..., Any]
    clip_norm: float | None = None
    clip_value: float | None = None
    scaler: torch.amp.GradScaler | None = None
    average: AveragedModel | None = None
    set_to_none: bool = True
    nonfinite: NonFinite = "update"
    buckets: tuple[int, ...] = ()
    reduction: Reduction = "mean"

    def __post_init__(self) -> None:
        for name, (what, kinds) in _TYPES.items():
            value = getattr(self, name)
            if not isinstance(value, kinds):
                hint = (
                    "give one, or None" if NoneType in kinds else "the order is (model, optimizer, loss_fn)"
                )
                raise TrainingError(f"{name} is {described(value)}, not {what}", hint=hint)
        kind = type(self.optimizer)
        closure = inspect.signature(kind.step).parameters.get("closure")
        if closure is not None and closure.default is inspect.Parameter.empty:
            raise TrainingError(
                f"{kind.__name__}.step takes a closure, and evaluates the model as often as values ask for",
                hint="keep the model in torch.compile(model, backend='torchstone') and call "
                "optimizer.step(closure)",
            )
        if isinstance(self.optimizer, torch.optim.SparseAdam):
            raise TrainingError(
                "SparseAdam needs sparse gradients, and a program has dense tensors only",
                hint="use torch.optim.Adam, or call optimizer.step() after loss.backward()",
            )
        for name in ("clip_norm", "clip_value"):
            bound = getattr(self, name)
            if bound is not None and not isinstance(bound, (Real, torch.Tensor)):
                raise TrainingError(f"{name}={bound!r} is not a number", hint="give a number, or None")
        if self.scaler is not None and not self.scaler.is_enabled():
            self.scaler = None
        if self.nonfinite not in get_args(NonFinite):
            raise TrainingError(
                f"nonfinite={self.nonfinite!r} is unknown",
                hint=f"use one of {', '.join(get_args(NonFinite))}",
            )

    def modules(self) -> Iterator[torch.nn.Module]:
        """Yield the modules whose parameters and buffers belong to the step."""
        yield self.model
        if isinstance(self.loss_fn, torch.nn.Module):
            yield self.loss_fn

    def numbers(self, rows: int = 0) -> dict[str, float]:
        """Return the numbers, besides those of the optimizer, that a program takes as arguments."""
        given: dict[str, float | None] = {"clip_norm": self.clip_norm, "clip_value": self.clip_value}
        if self.scaler is not None:
            given |= {"growth": self.scaler.get_growth_factor(), "backoff": self.scaler.get_backoff_factor()}
        if self.buckets:
            given["rows"] = rows
        return {name: float(value) for name, value in given.items() if value is not None}

    def form(self) -> tuple[Any, ...]:
        """Return what a program depends on besides the state, the batch and the optimizer."""
        interval = None if self.scaler is None else self.scaler.get_growth_interval()
        return (
            self.clip_norm is None,
            self.clip_value is None,
            interval,
            self.set_to_none,
            self.nonfinite,
            self.reduction,
            torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu"),
            torch.get_default_dtype(),
            torch.get_float32_matmul_precision(),
            *declared_bounds().items(),
        )

    def result(self, batch: tuple[Any, ...]) -> Any:
        """Return what ``loss_fn`` returns for ``batch``."""
        if len(batch) == 1:
            return self.loss_fn(self.model, batch[0])
        return self.loss_fn(_called(self.model, batch[0]), batch[1])

    def forward(self, batch: tuple[Any, ...], rows: Number | None) -> tuple[torch.Tensor, Any]:
        """Return the loss and what ``loss_fn`` returned. If ``rows`` is given, only so many rows count."""
        result = self.result(batch)
        if rows is not None:
            size = next(leaf.shape[0] for leaf in flatten(batch)[0] if has_rows(leaf))
            result = with_loss(result, reduced(loss_in(result), rows, size, self.reduction))
        return loss_of(result), result


def _called(model: torch.nn.Module, inputs: Any) -> Any:
    if isinstance(inputs, Mapping):
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, (tuple, list)) else model(inputs)


def loss_in(result: Any) -> torch.Tensor:
    """Return the loss from the result of ``loss_fn``: the result itself, its first item, or its ``loss``."""
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
    return loss


def loss_of(result: Any) -> torch.Tensor:
    """Return the loss from the result of ``loss_fn``; raise TrainingError if it cannot be differentiated."""
    loss = loss_in(result)
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
    return "a float" if isinstance(value, torch.SymFloat) else described(value)
