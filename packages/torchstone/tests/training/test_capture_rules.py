"""Whole steps of models that need capture rules, each against the same in eager PyTorch."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn

import torchstone
from torchstone.errors import CaptureError
from training_loops import assert_same_training, eager_step

Tensor = torch.Tensor


class Half(nn.Module):
    """A linear layer, and a function behind it."""

    def __init__(self, behind: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.linear, self.behind = nn.Linear(4, 4), behind
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.behind(self.linear(x))


def neighbors(x: Tensor) -> Tensor:
    graph = torch.sparse_coo_tensor([[0, 1, 2], [1, 0, 2]], torch.ones(3), (3, 3), check_invariants=True)
    return torch.sparse.mm(graph, x)


def positive(x: Tensor) -> Tensor:
    return x[x > 0].square().sum() + x.mean()


def squares(result: Tensor, _: Tensor) -> Tensor:
    return result.square().mean()


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "behind",
    [neighbors, positive, nn.BatchNorm1d(4, momentum=None)],
    ids=["sparse", "selected", "cumulative average"],
)
def test_a_step_of_a_model_that_needs_a_rule(behind: Callable[[Tensor], Tensor]) -> None:
    torch.manual_seed(0)
    model = Half(copy.deepcopy(behind))
    expected = copy.deepcopy(model)
    optimizer, other = (torch.optim.SGD(one.parameters(), 0.1, momentum=0.9) for one in (model, expected))
    step = torchstone.compile_step(model, optimizer, squares)
    for seed in range(3):
        x = torch.randn(3, 4, generator=torch.Generator().manual_seed(seed))
        with torchstone.bounds(selected=12):
            loss = step(x, x)
        torch.testing.assert_close(loss, eager_step(expected, other, x, x, squares))
    assert_same_training(model, optimizer, expected, other)
    assert model.calls == expected.calls == 3


def test_a_step_whose_rule_lacks_a_bound_says_why_it_cannot_be_traced() -> None:
    model = Half(positive)
    step = torchstone.compile_step(model, torch.optim.SGD(model.parameters()), squares)
    with pytest.raises(CaptureError, match=r"size of the result of .*depends on values.*x\[x > 0\]"):
        step(torch.randn(3, 4), torch.randn(3, 4))
    assert model.calls == 0


def test_an_exported_step_of_a_model_that_needs_a_rule() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, momentum=None))
    expected = copy.deepcopy(model)
    optimizer, other = (torch.optim.SGD(one.parameters(), 0.1) for one in (model, expected))
    x = torch.randn(3, 4)
    program = torchstone.export_step(model, optimizer, squares, (x, x))
    for _ in range(3):
        loss = torch.as_tensor(program(x, x))
        torch.testing.assert_close(loss, eager_step(expected, other, x, x, squares))
