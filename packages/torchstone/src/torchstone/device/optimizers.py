"""Steps of optimizers with ``fused=True``: one program writes all parameters and states.

The formulas are those of aten/src/ATen/native/cpu/Fused*Kernel.cpp: half precision is computed in float32,
factors in float64. If ``found_inf`` is 1, parameters and states do not change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from .operators import Operator

Tensor = torch.Tensor
Tensors = Sequence[Tensor]


class _Step:
    """The parts that all optimizers share: unscaling, the sign, half precision, and skipped steps."""

    def __init__(self, *, maximize: bool, grad_scale: Tensor | None, found_inf: Tensor | None) -> None:
        self._sign = -1 if maximize else 1
        self._scale = grad_scale
        self._found_inf = found_inf

    def gradient(self, grad: Tensor) -> Tensor:
        """Return the gradient for the formula; a scaled one is also unscaled in place, as PyTorch does."""
        found = wide(grad)
        if self._scale is not None:
            found = found / self._scale.to(found.dtype)
            self.write(grad, found)
        return found * self._sign

    def write(self, target: Tensor, value: Tensor) -> None:
        if self._found_inf is not None:
            value = torch.where(self._found_inf.to(torch.bool), wide(target), value)
        target.copy_(value)


def wide(tensor: Tensor) -> Tensor:
    """Return ``tensor`` in the dtype that the kernels compute in: float32 for half precision."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def _of_lists(update: Callable[..., None]) -> Callable[..., None]:
    """Return a fused operator that calls ``update(step, parameter, gradient, *states, **options)`` on lists.

    A list of states that the options do not use is empty; ``update`` then gets None for that state.
    """

    def operator(
        self: Tensors,
        grads: Tensors,
        *states: Tensors,
        maximize: bool,
        grad_scale: Tensor | None = None,
        found_inf: Tensor | None = None,
        **options: Any,
    ) -> None:
        step = _Step(maximize=maximize, grad_scale=grad_scale, found_inf=found_inf)
        lists: list[Sequence[Tensor | None]] = [one or [None] * len(self) for one in states]
        for param, grad, *own in zip(self, grads, *lists, strict=True):
            update(step, param, step.gradient(grad), *own, **options)

    return operator


def _sgd(
    step: _Step,
    param: Tensor,
    grad: Tensor,
    buffer: Tensor | None,
    *,
    weight_decay: float,
    momentum: float,
    lr: Tensor,
    dampening: float,
    nesterov: bool,
    is_first_step: bool,
) -> None:
    """``torch._fused_sgd_``; ``buffer`` is None without momentum."""
    value = wide(param)
    if weight_decay:
        grad = grad + value * weight_decay
    if momentum and buffer is not None:
        velocity = grad if is_first_step else wide(buffer) * momentum + grad * (1 - dampening)
        step.write(buffer, velocity)
        grad = grad + velocity * momentum if nesterov else velocity
    step.write(param, value - grad * lr)


def _adam(
    step: _Step,
    param: Tensor,
    grad: Tensor,
    exp_avg: Tensor,
    exp_avg_sq: Tensor,
    max_exp_avg_sq: Tensor | None,
    count: Tensor,
    *,
    lr: Tensor,
    beta1: float,
    beta2: float,
    weight_decay: float,
    eps: float,
    amsgrad: bool,
    decoupled: bool = False,
) -> None:
    """``torch._fused_adam_`` and, with ``decoupled``, ``torch._fused_adamw_``."""
    value, rate = wide(param), lr.double()
    if weight_decay and decoupled:
        value = value - value * (rate * weight_decay)
    elif weight_decay:
        grad = grad + value * weight_decay
    mean = wide(exp_avg) * beta1 + grad * (1 - beta1)
    square = wide(exp_avg_sq) * beta2 + grad * grad * (1 - beta2)
    step.write(exp_avg, mean)
    step.write(exp_avg_sq, square)
    if amsgrad and max_exp_avg_sq is not None:
        square = torch.maximum(wide(max_exp_avg_sq), square)
        step.write(max_exp_avg_sq, square)
    correction1, correction2 = 1 - beta1 ** count.double(), 1 - beta2 ** count.double()
    step.write(param, value - mean * (rate / correction1) / (square.sqrt() / correction2.sqrt() + eps))


def _adagrad(
    step: _Step,
    param: Tensor,
    grad: Tensor,
    total: Tensor,
    count: Tensor,
    *,
    lr: Tensor,
    lr_decay: float,
    weight_decay: float,
    eps: float,
) -> None:
    """``torch._fused_adagrad_``."""
    value = wide(param)
    grad = grad + value * weight_decay if weight_decay else grad
    square = wide(total) + grad * grad
    step.write(total, square)
    rate = lr.double() / (1 + (count.double() - 1) * lr_decay)
    step.write(param, value - grad / (square.sqrt() + eps) * rate)


def _kernel(operator: Operator) -> Callable[..., None]:
    """Return ``operator`` with its learning rate as a program argument, because schedules change it."""

    def call(*lists: Tensors, lr: float | Tensor, **options: Any) -> None:
        if not isinstance(lr, Tensor):
            lr = torch.tensor(lr, dtype=torch.float64, device="cpu")
        operator(*lists, lr=lr, **options)

    return call


def _kernels() -> dict[str, Callable[..., None]]:
    found = {}
    updates: dict[str, Callable[..., None]] = {
        "sgd": _sgd,
        "adam": _adam,
        "adamw": partial(_adam, decoupled=True),
        "adagrad": _adagrad,
    }
    for name, update in updates.items():
        kernel = _kernel(Operator(f"_fused_{name}_.tensor_lr", composed=_of_lists(update)))
        found[f"_fused_{name}_"] = found[f"_fused_{name}_.tensor_lr"] = kernel
    return found


KERNELS = _kernels()
"""The kernels by operator name."""
