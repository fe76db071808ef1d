"""Random numbers: seeds repeat them, calls differ, states are kept, distributions are right."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from torch.utils.data import random_split

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


def test_a_generator_of_the_device() -> None:
    """A generator repeats its numbers, continues from a saved state, and is copied with its state."""
    generator = torch.Generator(DEVICE)
    assert isinstance(generator, torch.Generator)
    assert generator.device == torch.device(DEVICE, 0)
    assert generator.manual_seed(3).initial_seed() == 3

    def one(source: torch.Generator) -> list[float]:
        return torch.rand(4, device=DEVICE, generator=source).tolist()

    first = one(generator)
    state = generator.get_state()
    copies = [copy.deepcopy(generator), pickle.loads(pickle.dumps(generator)), generator.clone_state()]
    assert {one.device.type for one in copies} == {DEVICE}
    second = one(generator)
    assert first != second
    assert [one(other) for other in copies] == [second] * 3
    assert one(generator.set_state(state)) == second
    assert one(torch.pjrt.Generator().manual_seed(3)) == first
    with pytest.raises(RuntimeError, match='there is no device "pjrt:1"'):
        torch.Generator(f"{DEVICE}:1")


def test_a_generator_compiles_nothing_new() -> None:
    from torchstone.device.operators import plan_count

    x = torch.empty(7, device=DEVICE)
    x.normal_(generator=torch.Generator(DEVICE))
    before = plan_count()
    x.normal_(generator=torch.Generator(DEVICE))
    assert plan_count() == before


def test_generators_of_other_devices_are_pytorch_s() -> None:
    """All generators are instances of ``torch.Generator``, and a user's subclass stays its own class."""
    plain = type(torch.default_generator)
    assert type(torch.Generator()) is type(torch.Generator("cpu")) is plain
    assert type(torch.Generator(device="cpu").manual_seed(1)) is plain
    assert isinstance(torch.default_generator, torch.Generator)

    class Own(torch.Generator):
        pass

    assert isinstance(Own(), Own)
    assert issubclass(Own, torch.Generator)
    assert not isinstance(torch.Generator(), Own)
    assert len(random_split([1, 2, 3, 4], [2, 2], generator=torch.Generator().manual_seed(1))) == 2


@pytest.mark.parametrize(
    ("dtype", "end"),
    [
        (torch.int64, 1 << 62),
        (torch.uint8, 256),
        (torch.bool, 2),
        (torch.float32, 1 << 24),
        (torch.float16, 2048),
    ],
)
def test_random_integers_that_fit(dtype: torch.dtype, end: int) -> None:
    x = torch.empty(2000, dtype=dtype, device=DEVICE).random_().double()
    assert x.min().item() < end / 4
    assert x.max().item() >= end / 2
    assert x.max().item() <= (2 * end if dtype == torch.int64 else end)
    few = torch.empty(100, dtype=dtype, device=DEVICE)
    assert set(few.random_(2).tolist()) == {0, 1}
    if dtype != torch.bool:
        assert set(few.random_(3, 5).tolist()) == {3, 4}


def test_random_integers_from_a_number_on() -> None:
    x = torch.empty(2000, dtype=torch.int8, device=DEVICE).random_(-5, None)
    assert (x.min().item(), x.max().item()) == (-5, 127)


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


SHAPES = (0.1, 0.7, 1.0, 3.0, 40.0)
RATES = (0.0, 0.3, 4.0, 9.5, 10.5, 200.0)
TRIALS = ((0.0, 0.5), (9.0, 0.0), (9.0, 1.0), (12.0, 0.3), (50.0, 0.9), (100.0, 0.5), (1000.0, 0.02))


def assert_moments(samples: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor) -> None:
    """Mean and variance of each column are within five standard errors."""
    samples = samples.double().cpu()
    count = len(samples)
    error = 5 * (variance / count).sqrt() + 1e-12
    assert ((samples.mean(0) - mean).abs() <= error).all()
    # The factor allows for distributions whose tails are heavier than those of the normal one.
    spread = 5 * (2 / count) ** 0.5 * (1 + 3 / mean.clamp_min(0.05)).sqrt()
    assert ((samples.var(0) - variance).abs() <= spread * variance + 1e-12).all()


def test_distributions_that_are_drawn_by_rejection() -> None:
    torch.manual_seed(5)
    shapes, rates = torch.tensor(SHAPES, dtype=torch.float64), torch.tensor(RATES, dtype=torch.float64)
    trials, chances = torch.tensor(TRIALS, dtype=torch.float64).unbind(1)
    count = 4000

    def drawn(*given: torch.Tensor) -> list[torch.Tensor]:
        return [one.float().expand(count, -1).contiguous().to(DEVICE) for one in given]

    gamma = torch._standard_gamma(*drawn(shapes))
    assert (gamma.dtype, gamma.device.type, bool((gamma > 0).all())) == (torch.float32, DEVICE, True)
    assert_moments(gamma, shapes, shapes)
    numbers = torch.poisson(*drawn(rates))
    assert bool((numbers == numbers.floor()).all())
    assert_moments(numbers, rates, rates)
    successes = torch.binomial(*drawn(trials, chances))
    assert bool(((successes >= 0) & (successes <= trials.float().to(DEVICE))).all())
    assert_moments(successes, trials * chances, trials * chances * (1 - chances))
    parts = torch._sample_dirichlet(*drawn(shapes))
    torch.testing.assert_close(parts.sum(-1).cpu(), torch.ones(count))
    share = shapes / shapes.sum()
    assert_moments(parts, share, share * (1 - share) / (1 + shapes.sum()))


def test_a_generator_and_a_seed_repeat_what_is_drawn_by_rejection() -> None:
    rates = torch.full((8,), 30.0, device=DEVICE)

    def one(seed: int) -> list[float]:
        return torch.poisson(rates, generator=torch.Generator(DEVICE).manual_seed(seed)).tolist()

    assert one(1) == one(1) != one(2)
    torch.manual_seed(0)
    first = torch._standard_gamma(rates)
    torch.manual_seed(0)
    assert torch._standard_gamma(rates).equal(first)


def test_what_no_distribution_has() -> None:
    with pytest.raises(RuntimeError, match="expected rate to be non-negative"):
        torch.poisson(torch.tensor([1.0, -1.0]).to(DEVICE))
    assert torch._standard_gamma(torch.tensor([0.0, float("nan")]).to(DEVICE))[1].isnan()
    assert torch.poisson(torch.empty(0, device=DEVICE)).shape == (0,)


def test_samples_move_with_their_shape_as_on_the_cpu() -> None:
    shapes = torch.tensor([0.3, 0.9, 2.0, 7.0, 9.0, 50.0]).repeat_interleave(4)
    samples = torch.tensor([0.05, 0.6, 1.02, 1.7]).repeat(6) * shapes
    expected = torch._standard_gamma_grad(shapes, samples)
    found = torch._standard_gamma_grad(shapes.to(DEVICE), samples.to(DEVICE))
    torch.testing.assert_close(found.cpu(), expected)
    concentration = shapes.to(DEVICE).requires_grad_()
    torch.distributions.Gamma(concentration, 1.0).rsample().sum().backward()
    assert concentration.grad is not None
    assert bool((concentration.grad > 0).all())


def test_shares_move_with_their_concentration_as_on_the_cpu() -> None:
    """The grid covers each region of the formula: near 0, near 1, both parts large, and the rest."""
    grid = torch.cartesian_prod(
        torch.tensor([1e-4, 0.02, 0.3, 0.5, 0.7, 0.98, 0.9999], dtype=torch.float64),
        torch.tensor([0.2, 1.0, 4.0, 8.0, 30.0], dtype=torch.float64),
        torch.tensor([0.2, 1.0, 4.0, 8.0, 30.0], dtype=torch.float64),
    )
    x, alpha, beta = grid.unbind(1)
    given = (x.contiguous(), alpha.contiguous(), alpha + beta)
    found = torch._dirichlet_grad(*(one.to(DEVICE) for one in given))
    torch.testing.assert_close(found.cpu(), torch._dirichlet_grad(*given), rtol=1e-9, atol=1e-12)

    concentration = torch.tensor([0.5, 2.0, 9.0], device=DEVICE, requires_grad=True)
    torch.distributions.Dirichlet(concentration).rsample()[0].backward()
    assert concentration.grad is not None
    assert concentration.grad[0].item() > 0
    assert concentration.grad[1:].max().item() < 0


def test_of_infinitely_many_trials_infinitely_many_succeed() -> None:
    chances = torch.tensor([0.0, 0.3, 0.5, 0.9, 1.0, float("nan")], device=DEVICE)
    counts = torch.full((6,), float("inf"), device=DEVICE)
    found = torch.binomial(counts, chances)
    assert found[:5].tolist() == [0.0, *[float("inf")] * 4]
    assert found[5].isnan()
