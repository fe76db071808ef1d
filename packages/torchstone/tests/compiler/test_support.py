"""Operators that cannot be lowered are found, with the reason, before anything is built."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from torchstone.compiler import build_program
from torchstone.errors import UnsupportedOperators

MASK = torch.tensor([True, False, True])
DATA = torch.arange(6.0).reshape(3, 2)


def refusal(model: Callable[..., Any], *args: torch.Tensor) -> dict[str, str]:
    """The reason for each operator of ``model`` that is refused."""
    with pytest.raises(UnsupportedOperators) as caught:
        build_program(model, args)
    return {node.overload: node.reason for node in caught.value.nodes}


@pytest.mark.parametrize(
    ("overload", "model"),
    [
        ("aten.bincount.default", lambda x, m: m.long().bincount()),
        ("aten.repeat_interleave.Tensor", lambda x, m: x.repeat_interleave(m.long(), 0)),
    ],
)
def test_sizes_without_a_bound(overload: str, model: Callable[..., Any]) -> None:
    assert refusal(model, DATA, MASK)[overload] == (
        "the size of its result depends on the values of its inputs, and nothing says how large that may "
        "become: call torch._check(result.shape[0] <= …)"
    )


def test_a_mask_beside_another_index() -> None:
    def model(x: torch.Tensor, mask: torch.Tensor, column: torch.Tensor) -> torch.Tensor:
        return x.index_put((mask, column), torch.tensor(0.0))

    reasons = refusal(model, DATA, MASK, torch.tensor(1))
    assert reasons == {
        "aten.index_put.default": "a bool mask beside another index tensor is not supported;"
        " write it with torch.where"
    }


def test_storage_that_the_operand_does_not_cover() -> None:
    reasons = refusal(lambda x: x.as_strided((3,), (2,)), DATA.reshape(-1)[:2])
    assert reasons["aten.as_strided.default"].startswith(
        "its operand (size [2], stride [1]) covers only a part"
    )
