"""Writes into expanded tensors: each place in memory is written once, as in eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from torchstone import export

pytestmark = pytest.mark.filterwarnings("ignore:Use of .* on expanded tensors is deprecated")

ROWS = torch.tensor([0, 1])
MASK = torch.tensor([[True, False, False], [False, False, True]])
WRITES: dict[str, Callable[[torch.Tensor], Any]] = {
    "zero": lambda x: x.expand(2, 3).zero_(),
    "zeros of a list": lambda x: torch._foreach_zero_([x.expand(2, 3), x[:2]]),
    "fill": lambda x: x.expand(2, 3).fill_(2.0),
    "masked fill": lambda x: x.expand(2, 3).masked_fill_(MASK, 7.0),
    "masked fill with a tensor": lambda x: x.expand(2, 3).masked_fill_(x > 0, torch.tensor(7.0)),
    "index fill": lambda x: x.expand(2, 3).index_fill_(1, ROWS, 3.0),
    "index fill along the repeated axis": lambda x: x.expand(2, 3).index_fill_(0, ROWS, 3.0),
    "index fill with a tensor": lambda x: x.expand(2, 3).index_fill_(1, ROWS, torch.tensor(3.0)),
    "a mesh": lambda x: torch.meshgrid(x, x, indexing="ij")[1].zero_(),
    "an item": lambda x: x.expand(2, 3).__setitem__((1, 2), 4.0),
    "no rows": lambda x: x.expand(0, 3).zero_(),
    "a row of a row": lambda x: x.view(1, 3).expand(1, 3).zero_(),
}


class Written(torch.nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.write = WRITES[name]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.write(x)
        return x * 2


@pytest.mark.parametrize("name", WRITES)
def test_inputs_and_results(name: str) -> None:
    model, given = Written(name), torch.tensor([0.5, -1.0, 2.0])
    inputs = [given.clone() for _ in range(3)]
    expected = model(inputs[0])
    assert torch.equal(export(model, (given.clone(),))(inputs[1]), expected)
    torch._dynamo.reset()
    assert torch.equal(torch.compile(model, backend="torchstone", fullgraph=True)(inputs[2]), expected)
    for found in inputs[1:]:
        assert torch.equal(found, inputs[0])


def test_a_program_that_pytorch_exported() -> None:
    model, given = Written("fill"), torch.tensor([0.5, -1.0, 2.0])
    program = export(torch.export.export(model, (given.clone(),)))
    assert torch.equal(program(given), torch.full((3,), 4.0))
    assert torch.equal(given, torch.full((3,), 2.0))


def test_a_tensor_fills_as_a_number_does() -> None:
    """Eager PyTorch refuses it."""

    class Filled(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x.expand(2, 3).fill_(x.sum())
            return x + 1

    assert export(Filled(), (torch.ones(3),))(torch.ones(3)).tolist() == [4, 4, 4]


def test_any_number_of_rows() -> None:
    class Rows(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            x.expand(y.shape[0], 3).masked_fill_(y > 0, 0.0)
            return x + 1

    rows = torch.export.Dim("rows", min=2)
    example = torch.ones(3), torch.tensor([[-1.0, 1, -1], [-1, -1, -1]])
    program = export(Rows(), example, dynamic_shapes={"x": None, "y": {0: rows}})
    for count in (2, 5):
        y = torch.full((count, 3), -1.0)
        y[count - 1, 0] = 1
        assert program(torch.ones(3), y).tolist() == [1, 2, 2]
