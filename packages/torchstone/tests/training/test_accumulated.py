"""Gradients that were accumulated before a step: kept if it raises, applied if their parameter is frozen."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import torchstone
from torchstone.errors import NotFinite
from training_loops import batches, mlp


@pytest.mark.kept("True")
@pytest.mark.parametrize("set_to_none", [True, False])
def test_a_step_that_raises_leaves_gradients_alone(set_to_none: bool) -> None:
    model, expected = mlp(), mlp()
    optimizer, expected_optimizer = (torch.optim.SGD(one.parameters(), lr=0.1) for one in (model, expected))
    step = torchstone.compile_step(
        model, optimizer, F.cross_entropy, nonfinite="raise", set_to_none=set_to_none
    )
    (inputs, targets), other = batches(2)
    with pytest.raises(NotFinite):
        step(inputs * torch.inf, targets)
    assert all(p.grad is None for p in model.parameters())
    step.accumulate(inputs, targets)
    with pytest.raises(NotFinite):
        step(inputs * torch.inf, targets)
    step(*other)
    for batch in ((inputs, targets), other):
        F.cross_entropy(expected(batch[0]), batch[1]).backward()
    expected_optimizer.step()
    torch.testing.assert_close(model.state_dict(), expected.state_dict())
    assert all((p.grad is None) == set_to_none for p in model.parameters())


@pytest.mark.kept("0.01")
@pytest.mark.parametrize("clip_norm", [None, 0.01])
def test_a_parameter_that_is_frozen_after_it_got_a_gradient(clip_norm: float | None) -> None:
    model, expected = mlp(), mlp()
    optimizer, expected_optimizer = (torch.optim.Adam(one.parameters(), lr=0.1) for one in (model, expected))
    step = torchstone.compile_step(model, optimizer, F.cross_entropy, clip_norm=clip_norm)
    first, second, third = batches(3)
    step.accumulate(*first)
    F.cross_entropy(expected(first[0]), first[1]).backward()
    model[0].requires_grad_(False)  # type: ignore[index]
    expected[0].requires_grad_(False)  # type: ignore[index]
    step.accumulate(*second)
    F.cross_entropy(expected(second[0]), second[1]).backward()
    for inputs, targets in (third, second):
        step(inputs, targets)
        F.cross_entropy(expected(inputs), targets).backward()
        if clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(expected.parameters(), clip_norm)
        expected_optimizer.step()
        expected_optimizer.zero_grad()
        torch.testing.assert_close(model.state_dict(), expected.state_dict())
