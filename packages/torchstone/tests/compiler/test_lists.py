"""Operators on lists of tensors, each through an export against eager PyTorch."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import torchstone
from torchstone.compiler.operators.lists import list_decompositions
from torchstone.errors import UnsupportedOperators
from torchstone.torch_internals import pytree
from torchstone.torch_internals.operators import functional_overloads, schema_of

OPERATORS = {one.name(): one for one in list_decompositions()}


def arguments(operator: Any) -> list[Any]:
    """Lists of two tensors with values in the domain of every operator, and numbers."""
    made: list[Any] = []
    for argument in schema_of(operator).arguments:
        kind = str(argument.type)
        if argument.kwarg_only:
            break
        if kind in ("List[Tensor]", "Tensor"):
            pair = [torch.rand(3, 3) * 0.8 + 0.1, torch.rand(3, 3) * 0.8 + 0.1]
            made.append(pair if kind == "List[Tensor]" else torch.tensor(0.5))
        elif kind in ("List[number]", "number"):
            made.append([2, 0.5] if kind == "List[number]" else 0.75)
    return made


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", OPERATORS)
def test_export(name: str) -> None:
    operator, args = OPERATORS[name], arguments(OPERATORS[name])
    torch.manual_seed(0)
    tensors, form = pytree.tree_flatten(args)
    given = [one for one in tensors if isinstance(one, torch.Tensor)]

    def call(*given: torch.Tensor) -> Any:
        left = iter(given)
        leaves = [next(left) if isinstance(one, torch.Tensor) else one for one in tensors]
        return operator(*pytree.tree_unflatten(leaves, form))

    program = torchstone.export(call, tuple(given))
    torch.testing.assert_close(list(program(*given)), list(call(*given)))


def test_what_is_left_to_pytorch() -> None:
    """A new operator on lists is noticed here."""
    lists = {one.name() for one in functional_overloads() if "foreach_" in one.name()}
    assert sorted(lists - set(OPERATORS)) == [
        "aten::_amp_foreach_non_finite_check_and_unscale",
        "aten::_foreach_addcdiv.Tensor",
        "aten::_foreach_addcmul.Tensor",
        "aten::_foreach_powsum.Scalar",
    ]


def test_a_dtype_of_norms_is_left_to_pytorch() -> None:
    with pytest.raises(UnsupportedOperators, match="_foreach_norm"):
        torchstone.export(lambda x: torch._foreach_norm([x], 2, dtype=torch.float64), (torch.randn(3),))
