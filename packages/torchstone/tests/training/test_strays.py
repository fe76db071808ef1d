"""Parameters that reach the loss past PyTorch's operators: trained as in eager PyTorch, or refused."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

import torchstone
from torchstone.errors import CaptureError

Tensor = torch.Tensor


class Doubled(torch.autograd.Function):
    """The identity, with twice the gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return grads[0] * 2


@torch.jit.script
def scripted(weight: Tensor, x: Tensor) -> Tensor:
    return (x @ weight).tanh()


class Net(nn.Module):
    """A model with a weight, which is also in a list, and a function of the module and its input."""

    def __init__(self, function: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weight = nn.Parameter(torch.randn(8, 4))
        self.register_buffer("seen", torch.zeros(()))
        self.listed = [self.weight]
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, x)


def swapped(net: Any, x: Tensor) -> Tensor:
    """Use the weight in place of another module's, and assign a buffer anew."""
    net.seen = net.seen + x.shape[0]
    assert isinstance(net.weight, nn.Parameter)
    assert dict(net.named_parameters())["weight"] is net.weight
    made: Tensor = torch.func.functional_call(net, {"weight": net.weight * 2}, (x,), strict=False)
    return made


WAYS: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "a function of autograd": lambda net, x: x @ Doubled.apply(net.weight),
    "a scripted function": lambda net, x: scripted(net.weight, x),
    "func.grad": lambda net, x: torch.func.grad(lambda w: (x @ w).tanh().sum())(net.weight),
    "func.vjp": lambda net, x: torch.func.vjp(lambda w: (x @ w).tanh(), net.weight)[0],
    "func.jacrev": lambda net, x: torch.func.jacrev(lambda w: (x @ w).tanh().sum(0))(net.weight),
    "vmap": lambda net, x: x @ torch.vmap(lambda row: row * 2)(net.weight),
    "another parameter": lambda net, x: x @ net.weight + x @ nn.Parameter(net.weight),
}


def loss_fn(model: nn.Module, x: Tensor) -> Tensor:
    made: Tensor = model(x).square().mean()
    return made


def trained(function: Callable[[Any, Tensor], Tensor], how: str) -> tuple[list[float], Tensor]:
    """The losses of two steps, and the weight after them."""
    net, x = Net(function), torch.linspace(-1, 1, 24).view(3, 8)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    if how == "exported":
        program = torchstone.export_step(net, optimizer, loss_fn, (x,))
        losses = [float(program(x)) for _ in range(2)]
        return losses, torch.from_numpy(program.state()["weight"].copy())
    step = torchstone.compile_step(net, optimizer, loss_fn)
    losses = []
    for _ in range(2):
        if how == "compiled":
            losses.append(float(step(x)))
            continue
        optimizer.zero_grad()
        loss = loss_fn(net, x)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, net.weight.detach().clone()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("way", WAYS)
def test_such_a_parameter_is_trained(way: str) -> None:
    losses, weight = trained(WAYS[way], "eager")
    for how in ("compiled", "exported"):
        found, trained_weight = trained(WAYS[way], how)
        assert found == pytest.approx(losses, abs=1e-5)
        torch.testing.assert_close(trained_weight, weight, msg=how)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda net, x: x @ Doubled.apply(net.listed[0]), "uses weight in a way that its trace does not see"),
        (
            lambda net, x: x @ torch.vmap(lambda row: row * 2)(net.listed[0]),
            "uses weight in a way that its trace does not see",
        ),
        (
            lambda net, x: x @ nn.Linear(4, 8).weight + x @ net.weight,
            r"makes a tensor of shape \[8, 4\], and its trace does not see how",
        ),
    ],
)
def test_a_parameter_that_the_trace_does_not_see_is_refused(function: Any, message: str) -> None:
    with pytest.raises(CaptureError, match=message):
        trained(function, "compiled")


class Reparametrized(nn.Module):
    """A model with weights that hooks compute from other parameters, and a pruned weight."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.spectral = nn.utils.spectral_norm(nn.Linear(8, 8))
        self.normed = nn.utils.weight_norm(nn.Linear(8, 8))
        self.pruned = prune.l1_unstructured(nn.Linear(8, 4), "weight", amount=0.3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.pruned(torch.tanh(self.normed(self.spectral(x))))
        return out


@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
def test_weights_that_hooks_compute() -> None:
    model, expected, x = Reparametrized(), Reparametrized(), torch.linspace(-1, 1, 24).view(3, 8)
    step = torchstone.compile_step(model, torch.optim.SGD(model.parameters(), lr=0.1), loss_fn)
    optimizer = torch.optim.SGD(expected.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        loss = loss_fn(expected, x)
        loss.backward()
        optimizer.step()
        torch.testing.assert_close(step(x), loss.detach())
    torch.testing.assert_close(model.state_dict(), expected.state_dict())
    torch.testing.assert_close(model.eval()(x), expected.eval()(x))


def test_another_thread_sees_the_module_as_it_is() -> None:
    seen: list[Any] = []

    def function(net: Any, x: Tensor) -> Tensor:
        def look() -> None:
            seen.append(
                (net.weight, dict(net.named_buffers())["seen"], net.state_dict()["weight"].sum().item())
            )

        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
        net.seen = net.seen + 1
        return x @ net.weight

    net, x = Net(function), torch.ones(3, 8)
    weight, buffer, total = net.weight, net.seen, net.weight.sum().item()
    torchstone.compile_step(net, torch.optim.SGD(net.parameters(), lr=0.1), loss_fn)(x)
    for found in seen:
        assert found[0] is weight
        assert found[1] is buffer
        assert found[2] == pytest.approx(total)
    assert net.seen == 1
    assert net.weight is weight
    assert type(net._parameters) is dict
