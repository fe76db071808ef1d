"""Turns entries of ``module_db`` and ``optim_db`` into bound calls: functions of tensors.

Not here: operators (``phases``).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .calls import FORWARD, Tensor
from .samples import Bound

_STEPS = 2
"""How many steps an optimizer makes; only from the second step on does its state matter."""


@dataclass(frozen=True)
class _AsFunction:
    """A module as a function of its parameters and buffers, then its inputs."""

    module: torch.nn.Module

    def __call__(self, state: Mapping[str, Tensor], *args: Any, **kwargs: Any) -> Any:
        return torch.func.functional_call(self.module, dict(state), args, kwargs)


def modules(kind: str, info: Any, dtype: torch.dtype) -> Iterator[tuple[Bound, str, None]]:
    """Yield the samples of a module in evaluation mode, except those without inputs to ``forward``."""
    differentiated = kind != FORWARD
    samples = info.module_inputs_func(
        info, device="cpu", dtype=dtype, requires_grad=differentiated, training=False
    )
    for sample in samples:
        if sample.forward_input is None:
            continue
        made = sample.constructor_input
        module = info.module_cls(*made.args, **made.kwargs).to(dtype).eval()
        if any(torch.nn.parameter.is_lazy(one) for one in module.parameters()):
            module(*sample.forward_input.args, **sample.forward_input.kwargs)  # sets their shapes
        state = {name: one.detach().clone() for name, one in module.state_dict().items()}
        if differentiated:
            for name, _ in module.named_parameters():
                state[name].requires_grad_()
        given = sample.forward_input
        yield Bound(_AsFunction(module), (state, *given.args), given.kwargs), kind, None


@dataclass(frozen=True)
class _Steps:
    """A function that makes steps of an optimizer with given gradients, and returns the new parameters."""

    make: Callable[..., torch.optim.Optimizer]
    options: Mapping[str, Any]
    closure: bool

    def __call__(self, parameters: Sequence[Tensor], gradients: Sequence[Tensor]) -> list[Tensor]:
        own = [one.detach().clone().requires_grad_() for one in parameters]
        optimizer = self.make(own, **copy.deepcopy(dict(self.options)))

        def loss() -> Tensor:
            for one, gradient in zip(own, gradients, strict=True):
                one.grad = gradient.clone()
            with torch.no_grad():
                return torch.stack([(a * b).sum() for a, b in zip(own, gradients, strict=True)]).sum()

        for _ in range(_STEPS):
            if self.closure:
                optimizer.step(loss)  # type: ignore[arg-type]
            else:
                loss()
                optimizer.step()
        return [one.detach() for one in own]


def optimizers(info: Any, dtype: torch.dtype) -> Iterator[tuple[Bound, str, None]]:
    """Yield a call on two small parameters for each set of options of an optimizer."""
    generator = torch.Generator().manual_seed(0)
    shapes = ((4, 3), (3,)) if info.optim_cls.__name__ != "Muon" else ((4, 3), (3, 5))
    for sample in info.optim_inputs_func("cpu", dtype=dtype):
        tensors = [
            torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in shapes * 2
        ]
        steps = _Steps(info.optim_cls, sample.kwargs, info.step_requires_closure)
        yield Bound(steps, (tensors[:2], tensors[2:])), FORWARD, None
