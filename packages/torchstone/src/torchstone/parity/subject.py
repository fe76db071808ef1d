"""A model with its inputs in the forms that a comparison needs: copied, widened, compiled, differentiated.

Not here: the choice of the forms that are compared (:mod:`.verify`).
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from ..compiler.capture import capture
from ..torch_internals import pytree
from .alike import tensors
from .compilation import compiled


@dataclass(frozen=True)
class Subject:
    """A module or function and its example inputs, ready to call."""

    model: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def __call__(self) -> list[torch.Tensor]:
        """Call the model and return the tensors in its result, in pytree order."""
        return tensors(self.result())

    def result(self) -> Any:
        """Return the result of one call."""
        return self.model(*self.args, **self.kwargs)

    def copy(self, *, training: bool) -> Subject:
        """Return an independent copy in training or evaluation mode."""
        model, args, kwargs = copy.deepcopy((self.model, self.args, self.kwargs))
        return Subject(model.train(training) if isinstance(model, torch.nn.Module) else model, args, kwargs)

    def doubled(self) -> Subject:
        """Return a copy with parameters, buffers and inputs in float64; complex inputs are complex128."""

        def widen(tensor: torch.Tensor) -> torch.Tensor:
            if tensor.is_complex():
                return tensor.to(torch.complex128)
            return tensor.double() if tensor.is_floating_point() else tensor

        model = copy.deepcopy(self.model)
        args, kwargs = pytree.tree_map_only(torch.Tensor, widen, (self.args, self.kwargs))
        return Subject(model.double() if isinstance(model, torch.nn.Module) else model, args, kwargs)

    def captured(self) -> Subject:
        """Return the model as captured under capture rules, sharing parameters and inputs."""
        return Subject(capture(self.model, self.args, self.kwargs).module(), self.args, self.kwargs)

    def compiled(self, *, fallback: bool = False) -> Subject:
        """Return the model compiled by ``torch.compile``, sharing parameters and inputs."""
        return Subject(compiled(self.model, fallback=fallback), self.args, self.kwargs)

    def inputs(self) -> list[torch.Tensor]:
        return tensors((self.args, self.kwargs))

    def leaves(self) -> dict[str, torch.Tensor]:
        """Return the tensors to differentiate by: parameters, or floating-point inputs if there are none."""
        if isinstance(self.model, torch.nn.Module):
            parameters: dict[str, torch.Tensor] = {
                name: p for name, p in self.model.named_parameters() if p.requires_grad
            }
            if parameters:
                return parameters
        return {
            f"input {position}": tensor.requires_grad_()
            for position, tensor in enumerate(self.inputs())
            if tensor.is_floating_point() or tensor.is_complex()
        }

    def buffers(self) -> dict[str, torch.Tensor]:
        return dict(self.model.named_buffers()) if isinstance(self.model, torch.nn.Module) else {}


def differentiate(
    outputs: list[torch.Tensor], leaves: dict[str, torch.Tensor]
) -> dict[str, torch.Tensor | None]:
    """Return each leaf's gradient; the cotangents depend only on the outputs' positions and shapes."""
    results = [output for output in outputs if output.requires_grad]
    torch.autograd.backward(results, [cotangent(i, output) for i, output in enumerate(results)])
    return {name: leaf.grad for name, leaf in leaves.items()}


def cotangent(position: int, output: torch.Tensor) -> torch.Tensor:
    """Return multiples of 1/8 in [-1, 1], which every floating-point dtype has; ``position`` is the seed."""
    generator = torch.Generator().manual_seed(position)
    return (torch.randint(-8, 9, output.shape, generator=generator) / 8).to(output.dtype)
