"""Outputs of compiled functions that are views: of inputs, of other outputs, of what is mutated."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from torchstone.backend.records import recorded
from torchstone.parity.alike import assert_alike, assert_written_alike, tensors

Function = Callable[..., Any]

VIEWS: dict[str, Function] = {
    "alias": lambda a, n: torch.ops.aten.alias(a),
    "as_strided": lambda a, n: a.as_strided((n, 2), (2, 1), n),
    "as_strided of a view": lambda a, n: a[1:].as_strided((2, n), (1, 3)),
    "atleast_3d": lambda a, n: torch.atleast_3d(a),
    "broadcast_to": lambda a, n: a[n].broadcast_to(n, 6),
    "broadcast_tensors": lambda a, n: torch.broadcast_tensors(a[:1], a[:n]),
    "chunk": lambda a, n: a.chunk(n),
    "detach": lambda a, n: a[n:].detach(),
    "diagonal": lambda a, n: a.diagonal(n - 2),
    "dsplit": lambda a, n: a.unsqueeze(0).dsplit([n]),
    "expand": lambda a, n: a[:1].expand(n, 6),
    "expand_as": lambda a, n: a[:1].expand_as(a),
    "flatten": lambda a, n: a[n:].flatten(),
    "hsplit": lambda a, n: a.hsplit([n, n + 1]),
    "imag": lambda a, n: torch.view_as_complex(a.view(-1, 3, 2)).imag[n:],
    "linalg.diagonal": lambda a, n: torch.linalg.diagonal(a, offset=n),
    "mT": lambda a, n: a[n:].mT,
    "mH": lambda a, n: torch.view_as_complex(a.view(-1, 3, 2))[n:].mH,
    "moveaxis": lambda a, n: a.unsqueeze(0).moveaxis(0, 2)[n:],
    "movedim": lambda a, n: a.unsqueeze(0).movedim((0, 1), (1, 2))[n:],
    "narrow": lambda a, n: a.narrow(0, n, 2),
    "nothing": lambda a, n: a[n:n],
    "neg view": lambda a, n: torch.view_as_complex(a.view(-1, 3, 2)).conj()[n:].imag,
    "permute": lambda a, n: a[:, :n].permute(1, 0),
    "ravel": lambda a, n: a[n].ravel(),
    "real": lambda a, n: torch.view_as_complex(a.view(-1, 3, 2)).real[n:],
    "reshape": lambda a, n: a.reshape(2, -1)[:, n:],
    "reshape_as": lambda a, n: a[:2].reshape_as(a[:2])[n - 2 :],
    "select": lambda a, n: a[n],
    "select from the end": lambda a, n: a[-n],
    "slice": lambda a, n: a[n:],
    "slice with a step": lambda a, n: a[::n, 1::2],
    "split": lambda a, n: a.split(n),
    "split into sizes": lambda a, n: a.split([n, a.shape[0] - n]),
    "squeeze": lambda a, n: a.narrow(0, n, 1).squeeze(0),
    "squeeze all": lambda a, n: a.narrow(0, n, 1).squeeze(),
    "squeeze several": lambda a, n: a.narrow(0, n, 1).narrow(1, 1, 1).squeeze((0, 1)),
    "swapaxes": lambda a, n: a[n:].swapaxes(0, 1),
    "swapdims": lambda a, n: a[n:].swapdims(0, 1),
    "t": lambda a, n: a[n:].t(),
    "T": lambda a, n: a[n:].T,
    "tensor_split": lambda a, n: a.tensor_split(n),
    "tensor_split at": lambda a, n: a.tensor_split((1, n)),
    "the input": lambda a, n: (a, a[n:], a),
    "transpose": lambda a, n: a.transpose(0, 1)[n:],
    "unbind": lambda a, n: a[:n].unbind(),
    "unflatten": lambda a, n: a.unflatten(1, (2, 3))[n],
    "unfold": lambda a, n: a.unfold(0, n, 1),
    "unsqueeze": lambda a, n: a[n:].unsqueeze(1),
    "view": lambda a, n: a.view(-1)[n:],
    "view of bits": lambda a, n: a[n:].detach().view(torch.int32),
    "view of halves": lambda a, n: a[n:].detach().view(torch.int16),
    "view_as": lambda a, n: a.view_as(a)[n:],
    "view_as_complex": lambda a, n: torch.view_as_complex(a.view(-1, 3, 2))[n:],
    "conj": lambda a, n: torch.view_as_complex(a.view(-1, 3, 2))[n:].conj(),
    "view_as_real": lambda a, n: torch.view_as_real(torch.view_as_complex(a.view(-1, 3, 2)))[n:],
    "views of views": lambda a, n: a[n:].t()[::2].unsqueeze(-1).expand(3, -1, 2),
    "vsplit": lambda a, n: a.vsplit([n]),
    # views of what the graph computes
    "of a result": lambda a, n: (a * 2)[n:],
    "of a result, twice": lambda a, n: (lambda b: (b[n:], b[:, ::2], b[0].expand(n, 6)))(a * 2),
    "of a result and the result": lambda a, n: (lambda b: (b.t(), b, b[n]))(a.sin()),
    "expanded sum": lambda a, n: a.sum().expand(n, 3),
    "transposed input's result": lambda a, n: a.t() * n,
    "conjugated result": lambda a, n: torch.view_as_complex((a * n).view(-1, 3, 2)).conj(),
}
"""Functions of a float32 matrix and a number: every view operator, and chains of them."""


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def matrices(**options: Any) -> list[torch.Tensor]:
    """Return matrices of three sizes; the last one is part of a larger tensor."""
    whole = [torch.arange(1.0, 1 + rows * 6).view(rows, 6) for rows in (4, 6, 10)]
    whole[2] = whole[2][2:]
    return [matrix.requires_grad_(**options) if options else matrix for matrix in whole]


def three_calls(function: Function, *more: Any, backend: str = "torchstone") -> None:
    """Compare three calls. Sizes and number are constants in the first graph, and symbols in the second."""
    compiled = torch.compile(function, backend=backend, fullgraph=True)
    for number, (ours, eager) in enumerate(zip(matrices(), matrices(), strict=True), start=2):
        found, expected = compiled(ours, number, *more), function(eager, number, *more)
        assert_alike([ours, *tensors(found)], [eager, *tensors(expected)])


@pytest.mark.parametrize(
    "function",
    [
        lambda a, n: a.unsafe_split(n),
        lambda a, n: a.unsafe_split_with_sizes([n, a.shape[0] - n]),
    ],
    ids=["size", "sizes"],
)
def test_parts_that_share_memory_without_being_views(function: Function) -> None:
    """Eager PyTorch marks these results as new tensors, not as views."""
    compiled = torch.compile(function, backend="torchstone", fullgraph=True)
    for number, (ours, eager) in enumerate(zip(matrices(), matrices(), strict=True), start=2):
        found, expected = compiled(ours, number), function(eager, number)
        assert_written_alike([ours, *found], [eager, *expected])


@pytest.mark.sampled(9)
@pytest.mark.parametrize("name", VIEWS)
def test_with_other_sizes(name: str) -> None:
    three_calls(VIEWS[name])


@pytest.mark.sampled(48)
@pytest.mark.parametrize("name", VIEWS)
def test_gradients_with_other_sizes(name: str) -> None:
    function = VIEWS[name]

    def shifted(a: torch.Tensor, n: int) -> Any:
        return function(a * 1.5, n), function(a, n)

    compiled = torch.compile(shifted, backend="torchstone", fullgraph=True)
    for number, (ours, eager) in enumerate(zip(matrices(), matrices(), strict=True), start=2):
        for matrix in (ours, eager):
            matrix.requires_grad_()
        found, expected = (tensors(f(a, number)) for f, a in ((compiled, ours), (shifted, eager)))
        grads = []
        for outputs, matrix in ((found, ours), (expected, eager)):
            loss = sum(((one * one).abs().sum() for one in outputs if one.requires_grad), matrix.sum())
            grads.append(torch.autograd.grad(loss, matrix))
        torch.testing.assert_close(*grads)
        assert_alike([ours, *found], [eager, *expected])


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("name", ["select", "unfold", "of a result, twice", "conjugated result"])
def test_without_gradients(name: str, mode: Any) -> None:
    with mode():
        three_calls(VIEWS[name])


def test_every_view_operator_is_here() -> None:
    class Called(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.names: set[str] = set()

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.names.add(str(function))
            return function(*args, **(kwargs or {}))

    with Called() as called:
        for function in VIEWS.values():
            function(matrices()[0], 2)
    missing = {str(overload) for overload in view_operators()} - called.names
    assert missing == {
        "aten._reshape_alias.default",  # older versions of PyTorch implemented reshape with it
        "aten.lift_fresh.default",  # takes constants only
    }


def view_operators() -> Iterator[Any]:
    """Overloads with a kernel of their own that return a view of a dense tensor."""
    others = ("values", "indices", "coalesce", "nested", "test", "dual", "primal", "cast", "inverse")
    for name in torch._C._dispatch_get_all_op_names():
        namespace, _, rest = name.partition("::")
        packet, _, overload = rest.partition(".")
        if namespace != "aten" or any(word in name for word in others):
            continue
        if torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeImplicitAutograd"):
            continue
        operator = getattr(getattr(torch.ops.aten, packet), overload or "default")
        returns = operator._schema.returns
        if operator.is_view and returns and returns[0].alias_info is not None:
            yield operator


class TestMutation:
    """Functions that write into inputs, and return views of them."""

    @pytest.mark.sampled(3)
    @pytest.mark.parametrize(
        "function",
        [
            lambda a, n: (a.add_(1), a[n], a.t()),
            lambda a, n: (a[n].mul_(2), a[n:]),
            lambda a, n: (a[n:], a.neg_()[0]),
            lambda a, n: (a.view(-1).zero_(), a[n].unsqueeze(0)),
            lambda a, n: (a[:2].copy_(a[n : n + 2].clone()), a[n]),
            lambda a, n: (a.unsafe_split(n)[1].add_(1).sum(), a[n]),
        ],
        ids=["whole", "part", "before", "through a view", "from itself", "through a part"],
    )
    def test_views_of_a_mutated_input(self, function: Function) -> None:
        three_calls(function)

    def test_of_a_tensor_that_requires_grad(self) -> None:
        def function(a: torch.Tensor, n: int) -> Any:
            a.mul_(3)
            return a[n], a.sin()

        compiled = torch.compile(function, backend="torchstone", fullgraph=True)
        for number, (ours, eager) in enumerate(zip(matrices(), matrices(), strict=True), start=2):
            results = []
            for f, leaf in ((compiled, ours), (function, eager)):
                leaf.requires_grad_()
                part = (leaf * 1)[1:]
                found = f(part, number)
                grad = torch.autograd.grad(sum(one.sum() for one in found), leaf)
                results.append([part, *found, *grad])
            assert_alike(*results)

    @pytest.mark.parametrize("dynamic", [False, True])
    def test_inputs_that_swap_values(self, dynamic: bool) -> None:
        def swap(a: torch.Tensor, b: torch.Tensor) -> None:
            before = a.clone()
            a.copy_(b)
            b.copy_(before)

        def swap_rows(a: torch.Tensor, b: torch.Tensor) -> None:
            before = a[0].clone()
            a[0].copy_(b[1])
            b[1].copy_(before)

        for function in (swap, swap_rows):
            a, b = torch.zeros(2, 3), torch.ones(2, 3)
            expected = [a.clone(), b.clone()]
            function(*expected)
            torch.compile(function, backend="torchstone", dynamic=dynamic)(a, b)
            assert torch.equal(a, expected[0])
            assert torch.equal(b, expected[1])


def test_a_graph_break_between_views() -> None:
    def function(a: torch.Tensor, n: int) -> Any:
        first, second = a.chunk(2)
        torch._dynamo.graph_break()
        second = second + first[:1]
        torch._dynamo.graph_break()
        return second[1:], first.t()[n:], second

    compiled = torch.compile(function, backend="torchstone")
    for number, (ours, eager) in enumerate(zip(matrices(), matrices(), strict=True), start=2):
        found, expected = compiled(ours, number), function(eager, number)
        assert_alike([ours, *found], [eager, *expected])


def test_views_beside_an_operator_that_falls_back() -> None:
    @torch.library.custom_op("torchstone_tests::turned", mutates_args=())
    def turned(x: torch.Tensor) -> torch.Tensor:
        return x.flip(0).contiguous()

    turned.register_fake(lambda x: torch.empty(x.shape, dtype=x.dtype))

    def function(a: torch.Tensor, n: int) -> Any:
        b = turned(a * 2) + 1
        return a[n:], b[n], b.t(), turned(b)[0]

    with pytest.warns(UserWarning, match="turned"):
        three_calls(function)


def test_a_view_of_an_input_computes_nothing() -> None:
    from torchstone import runtime

    compiled = torch.compile(lambda a: (a[1:].t(), a.view(-1)), backend="torchstone")
    runtime.reset_stats()
    with recorded() as records:
        compiled(torch.ones(3, 4))
    assert runtime.stats().compiles + runtime.stats().disk_hits + runtime.stats().memory_hits == 0
    assert records[0].native
    assert not records[0].fallbacks


@pytest.mark.parametrize("numbers", [(1, 1.0, True), (2, 2.0, 2.5)])
def test_numbers_of_different_types(numbers: tuple[Any, ...]) -> None:
    compiled = torch.compile(lambda a, s: (a * s, a / s), backend="torchstone")
    a = torch.arange(-1, 2)
    for number in (*numbers, *numbers):
        found, expected = compiled(a, number), (a * number, a / number)
        assert [one.dtype for one in found] == [one.dtype for one in expected]
        torch.testing.assert_close(found, expected, equal_nan=True)
