"""Graphs of steps that are made faster for eager PyTorch: the same bits, with less memory and fewer calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.fx import GraphModule
from torch.nn import functional as F

from torchstone.compiler.operators.onednn import choosing
from torchstone.compiler.operators.tracing import standing_in
from torchstone.torch_internals.dispatch import below_autograd, enable_python_dispatcher
from torchstone.torch_internals.fake import FakeTensorMode
from torchstone.torch_internals.operators import OpOverload, all_schemas, schema_of
from torchstone.torch_internals.patches import tracing
from torchstone.torch_internals.tracing import make_fx
from torchstone.training.eager_graph import make_faster
from torchstone.training.traced_graphs import read_undetached

Tensor = torch.Tensor
aten = torch.ops.aten


def traced(function: Callable[..., Any], *inputs: Tensor) -> GraphModule:
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    fakes = [mode.from_tensor(one.detach(), static_shapes=True) for one in inputs]
    module: GraphModule = make_fx(function, {}, tracing_mode="real", _allow_non_fake_inputs=True)(*fakes)
    read_undetached(module)
    return module


def faster(function: Callable[..., Any], *inputs: Tensor) -> str:
    """Check that the faster graph returns the same bits and keeps the inputs as they are; return its code."""
    module = traced(function, *inputs)
    before = [one.clone() for one in inputs]
    with torch.no_grad():
        expected = module(*inputs)
    make_faster(module)
    module.graph.lint()
    with torch.no_grad(), below_autograd():
        found = module.forward(*inputs)
    for one, other in zip((*found, *inputs), (*expected, *before), strict=True):
        assert one.stride() == other.stride()
        torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)
    return module.code


def gradients(loss: Callable[..., Tensor], parameters: int) -> Callable[..., list[Tensor]]:
    def run(*inputs: Tensor) -> list[Tensor]:
        leaves = [one.detach().requires_grad_() for one in inputs[:parameters]]
        made = loss(*leaves, *inputs[parameters:])
        return [*torch.autograd.grad(made, leaves), made.detach().clone()]

    return run


def test_a_network() -> None:
    """ReLUs, their gradients and sums write into what they read; batch norm and convolutions do not."""

    def loss(weight: Tensor, scale: Tensor, x: Tensor) -> Tensor:
        made = F.conv2d(x, weight, padding=1)
        made = F.relu(F.batch_norm(made, None, None, scale, None, training=True)) + x
        return F.silu(made).square().mean()

    inputs = torch.randn(4, 4, 3, 3), torch.randn(4), torch.randn(2, 4, 8, 8)
    code = faster(gradients(loss, 2), *inputs)
    assert "aten.relu_.default" in code
    assert "aten.pow.Tensor_Scalar(silu, 1" not in code, "the gradient of a square reads its argument"
    assert code.count("grad_input = ") == 2, "of ReLU and of SiLU"
    assert "aten.div.Scalar(expand" not in code, "a mean divides its gradient before expanding it"


def test_what_is_read_later_stays() -> None:
    code = faster(lambda x, y: [(made := x @ y) * 2, made.tanh(), made + 1, made], *torch.randn(2, 3, 3))
    assert "_.Tensor(" not in code
    assert "_.default(" not in code
    code = faster(lambda x, y: [(made := x @ y).relu() + made.t()], *torch.randn(2, 3, 3))
    assert "relu_" not in code
    assert "add_.Tensor(relu" in code


def test_both_operands_in_one_memory() -> None:
    code = faster(lambda x, y: [(made := x @ y) + made.t()], *torch.randn(2, 3, 3))
    assert "add_" not in code
    assert "mul_" in faster(lambda x, y: [(made := x @ y) * made], *torch.randn(2, 3, 3)), (
        "one operand, twice"
    )


def test_results_in_the_memory_of_operands_are_followed() -> None:
    """``y`` is in the memory of ``x @ x``, so a view of it keeps that memory from being written."""

    def run(x: Tensor) -> list[Tensor]:
        y = (x @ x).relu()
        view = y.t()
        return [y.sigmoid() * 3, view.tanh()]

    code = faster(run, torch.randn(3, 3))
    assert "relu_" in code
    assert "sigmoid_" not in code


@pytest.mark.parametrize("second", [False, True])
def test_operands_of_other_layouts(second: bool) -> None:
    """Neither a smaller operand nor one of another dtype or order has room for the result."""

    def run(x: Tensor, y: Tensor) -> list[Tensor]:
        row, whole = x.sum([0], True), (y @ y)
        made = whole + row if second else row + whole
        return [made, (x @ x > 0) * 1.5, (x @ x).double() + 1, (y @ x).t() + x]

    code = faster(run, *torch.randn(2, 3, 3))
    assert "add_.Tensor(mm, sum_1)" in code
    assert "mul_" not in code


def test_inputs_constants_and_unknown_kernels_are_not_written() -> None:
    constant = torch.randn(3)
    code = faster(lambda x: [x.relu() + constant, x.unbind()[0] * 2, x.cumsum(0).tanh()], torch.randn(3, 3))
    assert [name for name in ("relu_", "mul_", "tanh_") if name in code] == []


def test_what_the_graph_writes_stays_apart() -> None:
    """A power of one, or a divided number, that the model writes is not the tensor that it was made from."""

    def run(x: Tensor, y: Tensor) -> list[Tensor]:
        product = x @ y
        power = aten.pow.Tensor_Scalar(product, 1.0)
        both = [power.add_(1), product]
        number = aten.div.Scalar(aten.expand.default(x[0, 0], [3, 3]), 4)
        return [*both, number.mul_(y), aten.pow.Tensor_Scalar(x, 1.0)]

    faster(run, *torch.randn(2, 3, 3))


def test_inputs_that_the_graph_writes_are_written_once() -> None:
    def run(x: Tensor) -> list[Tensor]:
        count = aten.add_.Tensor(x.clone(), 1)
        return [aten.add_.Tensor(x, 1).mul(2), count * 2]

    module = traced(run, torch.zeros(3))
    make_faster(module)
    x = torch.zeros(3)
    found = module(x)
    assert [float(one[0]) for one in (x, *found)] == [1, 2, 2]


def test_a_divided_number_without_a_tensor_beside_it() -> None:
    def run(x: Tensor) -> list[Tensor]:
        made = aten.div.Scalar(aten.expand.default(x[0, 0], [3, 3]), 4)
        return [made.view(9), made.exp()]

    faster(run, torch.randn(3, 3))


def elementwise() -> list[OpOverload]:
    """All operators that have an overload which may write into an operand."""
    found = []
    for schema in all_schemas():
        packet = getattr(aten, schema.name.removeprefix("aten::"), None) if "aten" in schema.name else None
        one = getattr(packet, schema.overload_name or "default", None)
        if not isinstance(one, OpOverload) or torch.Tag.pointwise not in one.tags:
            continue
        results = [str(made.type) for made in schema_of(one).returns]
        if results == ["Tensor"] and not schema_of(one).is_mutable:
            found.append(one)
    return found


def arguments(overload: OpOverload) -> list[Any] | None:
    """Return arguments for a call: tensors for tensors, and numbers for numbers without a default."""
    made: list[Any] = []
    for argument in schema_of(overload).arguments:
        kind = str(argument.type)
        if kind == "Tensor":
            made.append(torch.rand(4, 4) + 0.1)
        elif argument.kwarg_only or argument.has_default_value():
            break
        elif kind in ("number", "float", "int"):
            made.append(1)
        else:
            return None
    return made


def test_each_operator_that_writes_into_an_operand_returns_the_same_bits() -> None:
    changed = 0
    for overload in elementwise():
        given = arguments(overload)
        if not given or not isinstance(given[0], Tensor):
            continue
        try:
            overload(*given)
        except (RuntimeError, NotImplementedError):  # for integers only, or never called by itself
            continue
        tensors = [one for one in given if isinstance(one, Tensor)]

        def run(*inputs: Tensor, overload: OpOverload = overload, given: list[Any] = given) -> list[Tensor]:
            own = iter(inputs)
            args = [next(own) if isinstance(one, Tensor) else one for one in given]
            return [overload(args[0] @ args[0], *args[1:])]

        code = faster(run, *tensors)
        changed += "_." in code or "grad_input" in code
    assert changed > 90


def test_a_graph_without_results_stays() -> None:
    module = traced(lambda x: [(x @ x).relu()], torch.randn(3, 3))
    for node in module.graph.nodes:
        node.meta.clear()
    make_faster(module)
    assert "relu_" not in module.code


def code_of_lstm(layer: nn.LSTM, loss: Callable[[Tensor], Tensor]) -> str:
    """Check the faster graph of half the gradients of a layer's parameters; return its code."""
    x = torch.randn(5, 3, 8)

    def of_inputs(*inputs: Tensor) -> Tensor:
        own = dict(zip(dict(layer.named_parameters()), inputs, strict=False))
        return loss(torch.func.functional_call(layer, own, (inputs[-1],))[0])

    parameters = [p.detach() for p in layer.parameters()]
    made = gradients(of_inputs, len(parameters))
    with tracing(), enable_python_dispatcher(), standing_in(aten.lstm.input), choosing(lambda _: True):
        return faster(lambda *inputs: [one * 0.5 for one in made(*inputs)], *parameters, x)


def test_gradients_that_share_memory_are_not_written() -> None:
    """oneDNN's LSTM returns one tensor as the gradient of both biases, which the graph cannot tell."""
    code = code_of_lstm(nn.LSTM(8, 8), lambda made: made.square().sum())
    assert "run_kernel_backward" in code, "the kernel is called without the dispatcher"


@pytest.mark.parametrize("dim", [0, 1, -2, 2])
def test_a_selection_from_the_output_of_an_lstm(dim: int) -> None:
    """Its gradient is made in the order of the kernel, unless a feature was selected."""
    code = code_of_lstm(nn.LSTM(8, 8, batch_first=True), lambda made: made.select(dim, -1).square().sum())
    assert code.count("aten.zeros.default([5, 8]") == 1, "initial states and gradients of last ones"
    assert "select_backward" in code
    assert ("transpose.int(select_backward" in code) == (dim == 2)


def test_filled_tensors_that_are_written_or_returned_are_not_shared() -> None:
    def run(x: Tensor) -> list[Tensor]:
        one, other, third, last = (torch.zeros(3) for _ in range(4))
        return [one.add_(x), x + other, x * third, last]

    code = faster(run, torch.randn(3))
    assert code.count("aten.zeros.default") == 3
