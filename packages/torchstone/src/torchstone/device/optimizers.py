"""Steps of optimizers with ``fused=True``: one program writes all parameters and states.

The formulas are those of aten/src/ATen/native/cpu/Fused*Kernel.cpp: half precision is computed in float32,
factors in float64. Where ``found_inf`` is 1 nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .operators import Operator

Tensor = torch.Tensor
Tensors = Sequence[Tensor]


class _Step:
    """What all optimizers do around their formula: unscaling, the sign, half precision, a step left out."""

    def __init__(self, *, maximize: bool, grad_scale: Tensor | None, found_inf: Tensor | None) -> None:
        self._sign = -1 if maximize else 1
        self._scale = grad_scale
        self._found_inf = found_inf

    def gradient(self, grad: Tensor) -> Tensor:
        """What the formula takes; a scaled gradient is unscaled in place, as the kernels do."""
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
    """In the dtype that the kernels compute in."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def sgd(
    self: Tensors,
    grads: Tensors,
    momentum_buffer_list: Tensors,
    *,
    weight_decay: float,
    momentum: float,
    lr: Tensor,
    dampening: float,
    nesterov: bool,
    maximize: bool,
    is_first_step: bool,
    grad_scale: Tensor | None = None,
    found_inf: Tensor | None = None,
) -> None:
    """``torch._fused_sgd_``; without momentum the list of buffers is empty."""
    step = _Step(maximize=maximize, grad_scale=grad_scale, found_inf=found_inf)
    for position, (param, scaled) in enumerate(zip(self, grads, strict=True)):
        value, grad = wide(param), step.gradient(scaled)
        if weight_decay:
            grad = grad + value * weight_decay
        if momentum:
            buffer = momentum_buffer_list[position]
            velocity = grad if is_first_step else wide(buffer) * momentum + grad * (1 - dampening)
            step.write(buffer, velocity)
            grad = grad + velocity * momentum if nesterov else velocity
        step.write(param, value - grad * lr)


def adam(*lists: Any, **options: Any) -> None:
    """``torch._fused_adam_``."""
    _adam(*lists, **options, decoupled=False)


def adamw(*lists: Any, **options: Any) -> None:
    """``torch._fused_adamw_``."""
    _adam(*lists, **options, decoupled=True)


def _adam(
    self: Tensors,
    grads: Tensors,
    exp_avgs: Tensors,
    exp_avg_sqs: Tensors,
    max_exp_avg_sqs: Tensors,
    state_steps: Tensors,
    *,
    lr: Tensor,
    beta1: float,
    beta2: float,
    weight_decay: float,
    eps: float,
    amsgrad: bool,
    maximize: bool,
    grad_scale: Tensor | None = None,
    found_inf: Tensor | None = None,
    decoupled: bool,
) -> None:
    step = _Step(maximize=maximize, grad_scale=grad_scale, found_inf=found_inf)
    rate = lr.double()
    for position, (param, scaled, count) in enumerate(zip(self, grads, state_steps, strict=True)):
        value, grad = wide(param), step.gradient(scaled)
        if weight_decay and decoupled:
            value = value - value * (rate * weight_decay)
        elif weight_decay:
            grad = grad + value * weight_decay
        mean = wide(exp_avgs[position]) * beta1 + grad * (1 - beta1)
        square = wide(exp_avg_sqs[position]) * beta2 + grad * grad * (1 - beta2)
        step.write(exp_avgs[position], mean)
        step.write(exp_avg_sqs[position], square)
        if amsgrad:
            square = torch.maximum(wide(max_exp_avg_sqs[position]), square)
            step.write(max_exp_avg_sqs[position], square)
        correction1, correction2 = 1 - beta1 ** count.double(), 1 - beta2 ** count.double()
        step.write(param, value - mean * (rate / correction1) / (square.sqrt() / correction2.sqrt() + eps))


def adagrad(
    self: Tensors,
    grads: Tensors,
    state_sums: Tensors,
    state_steps: Tensors,
    *,
    lr: Tensor,
    lr_decay: float,
    weight_decay: float,
    eps: float,
    maximize: bool,
    grad_scale: Tensor | None = None,
    found_inf: Tensor | None = None,
) -> None:
    """``torch._fused_adagrad_``."""
    step = _Step(maximize=maximize, grad_scale=grad_scale, found_inf=found_inf)
    for param, scaled, total, count in zip(self, grads, state_sums, state_steps, strict=True):
        value, grad = wide(param), step.gradient(scaled)
        if weight_decay:
            grad = grad + value * weight_decay
        square = wide(total) + grad * grad
        step.write(total, square)
        rate = lr.double() / (1 + (count.double() - 1) * lr_decay)
        step.write(param, value - grad / (square.sqrt() + eps) * rate)


def _kernel(operator: Operator) -> Callable[..., None]:
    """``operator`` with its learning rate, which schedules change, as an argument of the program."""

    def call(*lists: Tensors, lr: float | Tensor, **options: Any) -> None:
        if not isinstance(lr, Tensor):
            lr = torch.tensor(lr, dtype=torch.float64, device="cpu")
        operator(*lists, lr=lr, **options)

    return call


def _kernels() -> dict[str, Callable[..., None]]:
    found = {}
    composed: dict[str, Callable[..., None]] = {"sgd": sgd, "adam": adam, "adamw": adamw, "adagrad": adagrad}
    for name, function in composed.items():
        kernel = _kernel(Operator(f"_fused_{name}_.tensor_lr", composed=function))
        found[f"_fused_{name}_"] = found[f"_fused_{name}_.tensor_lr"] = kernel
    return found


KERNELS = _kernels()
"""By operator name."""
