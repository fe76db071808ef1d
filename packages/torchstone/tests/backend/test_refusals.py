"""Calls that eager PyTorch refuses or that a program cannot run: each gives one error and writes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.autograd import forward_ad

from torchstone.errors import DoubleBackward, UnsupportedLayout

pytestmark = pytest.mark.usefixtures("fresh_dynamo")


def compiled(function: Callable[..., Any], **options: Any) -> Any:
    return torch.compile(function, backend="torchstone", options=options)


class TestTangents:
    @pytest.mark.parametrize("warm", [False, True])
    def test_of_inputs_are_refused(self, warm: bool) -> None:
        function = compiled(lambda a: a.sin() * 2)
        if warm:
            function(torch.randn(3))
        with forward_ad.dual_level(), pytest.raises(UnsupportedLayout, match=r"use torch\.func\.jvp"):
            function(forward_ad.make_dual(torch.randn(3), torch.ones(3)))

    def test_plain_tensors_pass_inside_a_level(self) -> None:
        a = torch.randn(3)
        with forward_ad.dual_level():
            torch.testing.assert_close(compiled(torch.sin)(a), a.sin())

    def test_views_keep_them(self) -> None:
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(torch.randn(2, 3), torch.ones(2, 3))
            assert forward_ad.unpack_dual(compiled(lambda a: a.t())(dual)).tangent.shape == (3, 2)

    def test_jvp_of_a_compiled_function(self) -> None:
        a, tangent = torch.randn(3), torch.randn(3)
        torch.testing.assert_close(
            torch.func.jvp(compiled(torch.sin), (a,), (tangent,))[1], a.cos() * tangent
        )


def _add(w: torch.Tensor) -> torch.Tensor:
    return w.add_(1) * 2


def _set(w: torch.Tensor) -> torch.Tensor:
    w[0] = 5
    return w


def _through_a_view(w: torch.Tensor) -> torch.Tensor:
    return w.view(-1).mul_(2)


@pytest.mark.parametrize("function", [_add, _set, _through_a_view])
def test_a_leaf_that_requires_a_gradient_is_not_written(function: Any) -> None:
    ours = compiled(function)
    ours(torch.randn(3))
    w = torch.randn(3, requires_grad=True)
    before = w.detach().clone()
    for one in (function, ours):
        with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
            one(w)
        torch.testing.assert_close(w.detach(), before)


@pytest.mark.parametrize("size", [4, 5])
def test_an_index_out_of_range_leaves_buffers_as_they_are(size: int) -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x: torch.Tensor, where: torch.Tensor) -> torch.Tensor:
            self.calls.add_(1)
            return x.index_select(0, where)

    model = Model()
    function = compiled(model, check_indices=True)
    function(torch.randn(4), torch.tensor([2]))
    with pytest.raises(IndexError, match="out of"):
        function(torch.randn(size), torch.tensor([9]))
    assert model.calls == 1


def test_a_failure_between_compiled_parts_leaves_inputs_as_they_are() -> None:
    @torch.library.custom_op("torchstone_test::fails", mutates_args=())
    def fails(x: torch.Tensor) -> torch.Tensor:
        raise ValueError("this operator fails")

    @fails.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    def function(a: torch.Tensor) -> torch.Tensor:
        a.add_(1)
        return fails(a) + 1

    a = torch.zeros(3)
    with pytest.warns(UserWarning, match="torchstone_test"), pytest.raises(ValueError, match="this operator"):
        torch.compile(function, backend="torchstone")(a)
    assert not a.any()


def energy(x: torch.Tensor) -> torch.Tensor:
    return (x * x.tanh()).sum()


@pytest.mark.parametrize(
    "twice",
    [
        lambda f, x: torch.autograd.grad(torch.autograd.grad(f(x), x, create_graph=True)[0].sum(), x),
        lambda f, x: f(x).backward(create_graph=True),
        lambda f, x: torch.autograd.functional.hessian(f, x),  # would treat missing derivatives as zeros
        lambda f, x: torch.autograd.functional.hvp(f, x, torch.ones_like(x)),
    ],
    ids=["grad of grad", "backward", "hessian", "hvp"],
)
def test_second_derivative_of_a_compiled_function(twice: Callable[..., Any]) -> None:
    with pytest.raises(DoubleBackward) as refused:
        twice(compiled(energy), torch.randn(3, requires_grad=True))
    assert f"compiled function at {__file__}:" in str(refused.value)
    assert "torchstone.compile_step takes torch.autograd.grad(…, create_graph=True)" in str(refused.value)


def test_first_derivatives_may_be_taken_again() -> None:
    x = torch.randn(3, requires_grad=True)
    result = compiled(energy)(x)
    first, again = (torch.autograd.grad(result, x, retain_graph=True)[0] for _ in range(2))
    torch.testing.assert_close(first, torch.autograd.grad(energy(x), x)[0])
    torch.testing.assert_close(first, again)


def test_compiled_functions_of_other_backends_are_left_alone() -> None:
    x = torch.randn(3, requires_grad=True)
    result = torch.compile(energy, backend="aot_eager")(x)
    assert torch.autograd.grad(result, x, create_graph=True)[0].requires_grad


def test_second_derivative_inside_a_compiled_function() -> None:
    def penalty(x: torch.Tensor) -> torch.Tensor:
        return torch.autograd.grad(energy(x), x, create_graph=True)[0].square().sum()

    x = torch.randn(3, requires_grad=True)
    with torch._dynamo.config.patch(trace_autograd_ops=True):
        found = torch.autograd.grad(torch.compile(penalty, backend="torchstone", fullgraph=True)(x), x)
    torch.testing.assert_close(found, torch.autograd.grad(penalty(x), x))


def _raise_to(w: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return w.pow_(y)


def _compare(w: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (w * 1).lt_(y)


def _write_chosen(w: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return w.masked_scatter_(y > 0, y)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (_raise_to, r"output with shape \[1, 3\] doesn't match the broadcast shape \[2, 3\]"),
        (_compare, r"output with shape \[1, 3\] doesn't match the broadcast shape \[2, 3\]"),
        (_write_chosen, r"mask of shape \[2, 3\] does not broadcast to the tensor's shape \[1, 3\]"),
    ],
)
def test_calls_in_place_do_not_grow_their_tensor(function: Callable[..., Any], words: str) -> None:
    w, y = torch.ones(1, 3), torch.full((2, 3), 2.0)
    with pytest.raises(RuntimeError):
        function(w, y)
    with pytest.raises(RuntimeError, match=words) as raised:
        compiled(function)(w, y)
    assert f'File "{__file__}"' in str(raised.value)
    assert w.tolist() == [[1.0, 1.0, 1.0]]
