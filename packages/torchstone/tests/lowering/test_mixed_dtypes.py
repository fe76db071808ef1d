"""Operands of different dtypes: what eager PyTorch refuses is refused, the rest has its dtypes and values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

import torchstone
from torchstone.errors import CaptureError, UnsupportedOperators

OTHERS = (torch.float64, torch.float16, torch.int64)
REFUSALS = (AssertionError, IndexError, NotImplementedError, RuntimeError, TypeError, ValueError)
"""Errors with which eager PyTorch refuses a call."""
DRAWN = ("dropout", "normal", "multinomial", "rrelu", "bernoulli", "fractional", "lowrank", "_attention")
NOT_CAPTURED = ("equal",)
"""Entries whose results are not tensors."""


def first_sample(op: OpInfo) -> tuple[list[Any], Any]:
    for sample in op.sample_inputs("cpu", torch.float32):
        leaves, tree = tree_flatten((sample.input, sample.args, sample.kwargs))
        leaves = [one.detach() if isinstance(one, torch.Tensor) else one for one in leaves]
        strided = all(one.layout == torch.strided for one in leaves if isinstance(one, torch.Tensor))
        if strided and len(floating(leaves)) > 1:
            return leaves, tree
    return [], None


def floating(leaves: list[Any]) -> list[int]:
    return [
        place for place, one in enumerate(leaves) if isinstance(one, torch.Tensor) and one.is_floating_point()
    ]


def changed(leaves: list[Any]) -> Iterator[list[Any]]:
    """Yield the sample with one operand at a time in another dtype."""
    for place in floating(leaves)[:3]:
        for dtype in OTHERS:
            yield [one.to(dtype) if at == place else one for at, one in enumerate(leaves)]


ENTRIES = [one for one in op_db if one.name not in NOT_CAPTURED and torch.float32 in one.dtypes]


@pytest.mark.sampled(144)
@pytest.mark.parametrize("op", ENTRIES, ids=lambda op: f"{op.name}-{op.variant_test_name or 'plain'}")
def test_operands_of_different_dtypes(op: OpInfo) -> None:
    torch.manual_seed(0)
    leaves, tree = first_sample(op)
    for given in changed(leaves):
        places = [place for place, one in enumerate(given) if isinstance(one, torch.Tensor)]

        def function(*tensors: torch.Tensor, given: list[Any] = given, places: list[int] = places) -> Any:
            whole = list(given)
            for place, tensor in zip(places, tensors, strict=True):
                whole[place] = tensor
            own, args, kwargs = tree_unflatten(whole, tree)
            return op.op(own, *args, **kwargs)

        tensors = [given[place] for place in places]
        dtypes = [tensor.dtype for tensor in tensors]
        try:
            expected = function(*(tensor.clone() for tensor in tensors))
        except REFUSALS as error:
            if "not implemented for 'Half'" in str(error):
                continue  # programs support more operators in 16 bits
            with pytest.raises((CaptureError, UnsupportedOperators)):  # noqa: PT012
                torchstone.export(function, tuple(tensors))
                pytest.fail(f"{dtypes}: eager raises {error}")
            continue
        try:
            program = torchstone.export(function, tuple(tensors))
        except UnsupportedOperators:
            continue  # a declared gap
        found = program(*(tensor.clone() for tensor in tensors))
        for one, other in zip(tree_leaves(found), tree_leaves(expected), strict=True):
            assert one.dtype == other.dtype, dtypes
            if not any(part in op.name for part in DRAWN):
                rough = 2e-3 if torch.float16 in dtypes else 2e-5
                torch.testing.assert_close(one, other, rtol=rough, atol=rough, equal_nan=True)


@pytest.mark.parametrize("narrow", [torch.bfloat16, torch.float16])
def test_the_gradient_of_mish_has_the_dtype_of_its_input(narrow: torch.dtype) -> None:
    backward = torch.ops.aten.mish_backward.default
    for dtypes in ((torch.float32, narrow), (narrow, torch.float32)):
        gradient, x = (torch.randn(2, 3).to(dtype) for dtype in dtypes)
        found, expected = torchstone.export(backward, (gradient, x))(gradient, x), backward(gradient, x)
        assert found.dtype == expected.dtype == x.dtype
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("name", ["_softmax_backward_data", "_log_softmax_backward_data"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_the_gradient_of_softmax_has_the_dtype_of_its_gradient(name: str, dtype: torch.dtype) -> None:
    backward = getattr(torch.ops.aten, name).default
    given = torch.randn(2, 3).to(dtype), torch.rand(2, 3).to(dtype)

    def function(gradient: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
        return backward(gradient, result, 1, torch.float32)  # type: ignore[no-any-return]

    found, expected = torchstone.export(function, given)(*given), function(*given)
    assert found.dtype == expected.dtype == dtype
    torch.testing.assert_close(found, expected)
