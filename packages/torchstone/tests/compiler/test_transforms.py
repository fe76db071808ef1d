"""Transforms of ``torch.func`` in models: those that differentiate are refused with the line."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, func

import torchstone
from torchstone.errors import CaptureError


def total(x: Tensor) -> Tensor:
    return x.sin().sum()


DIFFERENTIATING: dict[str, Callable[[Tensor], Tensor]] = {
    "grad": lambda x: func.grad(total)(x),
    "vjp": lambda x: func.vjp(torch.sin, x)[1](x)[0],
    "jvp": lambda x: func.jvp(torch.sin, (x,), (x,))[1],
    "jacrev": lambda x: func.jacrev(torch.sin)(x[0]),
    "jacfwd": lambda x: func.jacfwd(torch.sin)(x[0]),
    "hessian": lambda x: func.hessian(total)(x[0]),
    "a gradient for each row": lambda x: func.vmap(func.grad(total))(x),
}


@pytest.mark.parametrize("name", DIFFERENTIATING)
def test_what_differentiates_is_refused_with_its_line(name: str) -> None:
    line = DIFFERENTIATING[name].__code__.co_firstlineno
    wanted = f"differentiates with torch.func at {__file__}:{line}, which torch.export leaves out"
    with pytest.raises(CaptureError, match=wanted):
        torchstone.export(DIFFERENTIATING[name], (torch.randn(4, 3),))


def penalized(x: Tensor) -> Tensor:
    x = x.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(total(x), x)
    return gradient.square().sum()


@pytest.mark.parametrize("model", [lambda x: func.vmap(total)(x), penalized], ids=["vmap", "autograd.grad"])
def test_what_the_refusal_proposes_and_vmap_export(model: Callable[[Tensor], Tensor]) -> None:
    x = torch.randn(4, 3)
    torch.testing.assert_close(torchstone.export(model, (x,))(x), model(x).detach())
