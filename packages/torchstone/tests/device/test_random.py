"""Random numbers: seeds repeat them, calls differ, states are kept, distributions are right."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from .mirrored import DEVICE


def draw() -> list[float]:
    return torch.rand(4, device=DEVICE).tolist()


def test_a_seed_repeats_and_calls_differ() -> None:
    torch.manual_seed(3)
    first, second = draw(), draw()
    torch.pjrt.manual_seed(3)
    assert draw() == first != second
    assert torch.pjrt.initial_seed() == 3
    torch.pjrt.manual_seed_all(4)
    assert draw() != first


def test_states_are_kept_and_restored() -> None:
    state = torch.pjrt.get_rng_state()
    first = draw()
    torch.pjrt.set_rng_state(state)
    assert draw() == first
    torch.pjrt.set_rng_state(state)
    with torch.random.fork_rng(devices=[0], device_type=DEVICE):
        assert draw() == first
    assert draw() == first
    with pytest.raises(TypeError, match="of 16 bytes, found 3 elements"):
        torch.pjrt.set_rng_state(torch.zeros(3))


def test_a_generator_of_the_cpu_gives_the_seed() -> None:
    def one(seed: int) -> list[float]:
        generator = torch.Generator().manual_seed(seed)
        return torch.empty(3, device=DEVICE).normal_(generator=generator).tolist()

    assert one(1) == one(1) != one(2)


def test_distributions() -> None:
    torch.manual_seed(0)
    normal = torch.randn(20000, device=DEVICE)
    assert abs(normal.mean().item()) < 0.03
    assert abs(normal.std().item() - 1) < 0.03
    assert set(torch.randint(2, 5, (1000,), device=DEVICE).tolist()) == {2, 3, 4}
    assert sorted(torch.randperm(50, device=DEVICE).tolist()) == list(range(50))
    uniform = torch.empty(20000, device=DEVICE).uniform_(-1, 3)
    assert (uniform.min().item() >= -1, uniform.max().item() < 3) == (True, True)
    assert abs(uniform.mean().item() - 1) < 0.05
    assert abs(torch.full((20000,), 0.3, device=DEVICE).bernoulli().mean().item() - 0.3) < 0.02


def test_dropout_masks_forward_and_backward_alike() -> None:
    x = torch.ones(1000, device=DEVICE, requires_grad=True)
    y = F.dropout(x, 0.25)
    y.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, y.detach())
    assert abs((y == 0).float().mean().item() - 0.25) < 0.06


def test_checkpointing_draws_the_same_numbers_again() -> None:
    x = torch.ones(100, device=DEVICE, requires_grad=True)
    y = checkpoint(lambda x: F.dropout(x).square(), x, use_reentrant=False)
    y.sum().backward()
    # A kept element is 2, its square 4, and the derivative of the square 8.
    assert x.grad is not None
    assert torch.equal(x.grad, y.detach() * 2)
    assert 20 < int((y == 0).sum()) < 80
