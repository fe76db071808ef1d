"""``torch.func`` and batches of gradients of compiled functions and modules: what eager PyTorch gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import func
from torch.autograd import functional

Tensor = torch.Tensor
Transform = Callable[[Callable[..., Any]], Any]


pytestmark = pytest.mark.usefixtures("fresh_dynamo")


def compiled(function: Callable[..., Any], **options: Any) -> Any:
    return torch.compile(function, backend="torchstone", **options)


def scalar(x: Tensor) -> Tensor:
    return (x * x.tanh()).sum()


def vector(x: Tensor) -> Tensor:
    return x.sin() * x.sum()


def dropped(x: Tensor) -> Tensor:
    return torch.nn.functional.dropout(x, 0.5)


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))


X, BATCH = torch.tensor([0.3, -1.2, 0.7]), torch.linspace(-1, 1, 12).reshape(4, 3)


def assert_as_eager(transform: Callable[[Any], Any], function: Callable[..., Any]) -> None:
    """Check the transform of a compiled function that was called before, so that it has a program."""
    torch.manual_seed(1)
    expected = transform(function)
    ours = compiled(function)
    for _ in range(2):
        ours(X.clone().requires_grad_())
    torch.manual_seed(1)
    torch.testing.assert_close(transform(ours), expected)


FUNCTIONS: dict[str, tuple[Transform, Callable[..., Any]]] = {
    "grad": (lambda f: func.grad(f)(X), scalar),
    "grad of grad": (lambda f: func.grad(lambda x: func.grad(f)(x).sum())(X), scalar),
    "hessian": (lambda f: func.hessian(f)(X), scalar),
    "jacrev": (lambda f: func.jacrev(f)(X), vector),
    "jacfwd": (lambda f: func.jacfwd(f)(X), vector),
    "jacfwd of jacrev": (lambda f: func.jacfwd(func.jacrev(f))(X), vector),
    "vjp": (lambda f: func.vjp(f, X)[1](torch.ones(3)), vector),
    "jvp": (lambda f: func.jvp(f, (X,), (torch.ones(3),)), vector),
    "vmap": (lambda f: func.vmap(f)(BATCH), vector),
    "vmap of grad": (lambda f: func.vmap(func.grad(f))(BATCH), scalar),
    "vmap, same numbers": (lambda f: func.vmap(f, randomness="same")(BATCH), dropped),
    "vmap, other numbers": (lambda f: func.vmap(f, randomness="different")(BATCH), dropped),
    "jacrev of random numbers": (lambda f: func.jacrev(f)(X), dropped),
    "called beside the batch": (lambda f: func.vmap(lambda x: x * f(X))(BATCH), vector),
    "same numbers beside the batch": (
        lambda f: func.vmap(lambda x: x * f(X), randomness="same")(BATCH),
        dropped,
    ),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_of_a_compiled_function(name: str) -> None:
    assert_as_eager(*FUNCTIONS[name])


def weights(model: Any) -> dict[str, Tensor]:
    return {name: p.detach() for name, p in model.named_parameters()}


def two_of(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: torch.stack([one, one * 2]) for name, one in tensors.items()}


def plain(gradients: dict[str, Tensor]) -> dict[str, Tensor]:
    """Rename gradients of a compiled module to the parameter names of the model itself."""
    return {name.removeprefix("_orig_mod."): one for name, one in gradients.items()}


MODULES: dict[str, Callable[[Any], Any]] = {
    "functional_call": lambda m: func.functional_call(m, weights(m), (BATCH,)),
    "grad": lambda m: plain(
        func.grad(lambda p: func.functional_call(m, p, (BATCH,)).sum())(weights(m)),
    ),
    "jacrev": lambda m: plain(func.jacrev(lambda p: func.functional_call(m, p, (BATCH,)))(weights(m))),
    "gradients of samples": lambda m: plain(
        func.vmap(func.grad(lambda p, x: func.functional_call(m, p, (x,)).sum()), (None, 0))(
            weights(m), BATCH
        )
    ),
    "ensemble": lambda m: func.vmap(lambda p: func.functional_call(m, p, (BATCH,)))(two_of(weights(m))),
    "hessian": lambda m: func.hessian(lambda x: m(x).sum())(X),
    "vmap": lambda m: func.vmap(m)(BATCH),
}


@pytest.mark.parametrize("name", MODULES)
def test_of_a_compiled_module(name: str) -> None:
    assert_as_eager(MODULES[name], network())


@pytest.mark.parametrize(
    "transform",
    [
        lambda f: func.vmap(f)(BATCH),
        lambda f: func.jacfwd(f)(X),
        lambda f: func.hessian(lambda x: f(x).square().sum())(X),
    ],
    ids=["vmap", "jacfwd", "hessian"],
)
def test_random_numbers_need_randomness_as_in_eager(transform: Transform) -> None:
    for function in (dropped, compiled(dropped)):
        with pytest.raises(RuntimeError, match="use the 'same' or 'different' randomness flags"):
            transform(function)


def test_a_compiled_transform() -> None:
    torch.testing.assert_close(compiled(func.hessian(scalar), fullgraph=True)(X), func.hessian(scalar)(X))


def test_of_a_function_that_was_not_called_before() -> None:
    torch.testing.assert_close(func.hessian(compiled(scalar))(X), func.hessian(scalar)(X))


def test_vmap_of_the_gradient_of_a_result_is_refused() -> None:
    x = X.clone().requires_grad_()
    y = compiled(vector)(x)
    with pytest.raises(RuntimeError, match=r"compiled backward function within vmap.*wrapping vmap inside"):
        func.vmap(lambda one: torch.autograd.grad(y, x, one, retain_graph=True)[0])(torch.eye(3))


def batch_of_gradients(function: Callable[..., Any]) -> Tensor:
    x = X.clone().requires_grad_()
    return torch.autograd.grad(function(x), x, torch.eye(3), is_grads_batched=True)[0]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    "transform",
    [batch_of_gradients, lambda f: functional.jacobian(f, X, vectorize=True)],
    ids=["is_grads_batched", "vectorize"],
)
def test_a_batch_of_gradients(transform: Transform, dynamic: bool) -> None:
    ours, expected = compiled(vector, dynamic=dynamic), transform(vector)
    for _ in range(3):
        torch.testing.assert_close(transform(ours), expected)
    one = X.clone().requires_grad_()
    torch.testing.assert_close(
        torch.autograd.grad(ours(one).sum(), one), torch.autograd.grad(vector(one).sum(), one)
    )


def test_a_batch_of_gradients_of_a_dropped_function() -> None:
    """The mask of the forward pass is the same for every gradient in the batch."""
    x = X.clone().requires_grad_()
    y = compiled(dropped)(x)
    found = torch.autograd.grad(y, x, torch.eye(3), is_grads_batched=True)[0]
    torch.testing.assert_close(found, torch.diag((y / x).detach()))
