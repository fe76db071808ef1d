"""Random operators: their distributions, and what a seed determines.

Shapes and dtypes are checked with all other operators in ``test_operators``.
Draws are fixed by their seed, so a statistical test passes always or never.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
from scipy import stats

from torchstone.compiler import normalize
from torchstone.compiler.capture import capture
from torchstone.parity.operators import run_graph

N = 20_000
SIGNIFICANCE = 1e-3
Array = numpy.ndarray[Any, Any]


def draw(function: Callable[..., Any], *args: torch.Tensor, seed: tuple[int, int] = (3, 14)) -> list[Array]:
    """Return what the compiled ``function`` returns for a seed."""
    return run_graph(normalize(capture(function, args)).graph_module, args, seed)


def follows(values: Array, distribution: Any) -> bool:
    """Whether the values pass the Kolmogorov-Smirnov test."""
    return bool(stats.kstest(values.ravel().astype(numpy.float64), distribution.cdf).pvalue > SIGNIFICANCE)


CONTINUOUS = {
    "rand": (lambda x: torch.rand(x.shape), stats.uniform()),
    "rand_like float64": (lambda x: torch.rand_like(x, dtype=torch.float64), stats.uniform()),
    "randn": (lambda x: torch.randn(x.shape), stats.norm()),
    "randn_like float64": (lambda x: torch.randn_like(x, dtype=torch.float64), stats.norm()),
    "normal of numbers": (lambda x: torch.normal(2.0, 3.0, x.shape), stats.norm(2, 3)),
    "normal of tensors": (lambda x: torch.normal(x + 2, x + 3), stats.norm(2, 3)),
    "normal_": (lambda x: x.clone().normal_(-1, 0.5), stats.norm(-1, 0.5)),
    "uniform_": (lambda x: x.clone().uniform_(-2, 5), stats.uniform(-2, 7)),
    "exponential_": (lambda x: x.clone().exponential_(2.0), stats.expon(scale=0.5)),
    "cauchy_": (lambda x: x.clone().cauchy_(1.0, 2.0), stats.cauchy(1, 2)),
    "log_normal_": (lambda x: x.clone().log_normal_(0.5, 0.25), stats.lognorm(0.25, scale=numpy.exp(0.5))),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous_distribution(name: str) -> None:
    function, distribution = CONTINUOUS[name]
    (values,) = draw(function, torch.zeros(N))
    assert follows(values, distribution)
    assert len(numpy.unique(values)) > 0.95 * N


def test_the_distribution_test_can_fail() -> None:
    (values,) = draw(lambda x: torch.randn(x.shape), torch.zeros(N))
    assert not follows(values, stats.norm(0, 1.1))
    assert not follows(values, stats.norm(0.05, 1))


def test_complex_normal_has_unit_variance() -> None:
    (values,) = draw(lambda x: torch.randn(x.shape, dtype=torch.complex64), torch.zeros(N))
    assert follows(values.real, stats.norm(0, 0.5**0.5))
    assert follows(values.imag, stats.norm(0, 0.5**0.5))
    assert abs(numpy.corrcoef(values.real, values.imag)[0, 1]) < 0.03


@pytest.mark.parametrize(
    ("function", "part"),
    [
        (lambda x: x.clone().uniform_(-2, 5), stats.uniform(-2, 7)),
        (lambda x: x.clone().normal_(-2, 0.5), stats.norm(-2, 0.5 * 0.5**0.5)),
        (lambda x: torch.normal(-2.0, 0.5, x.shape, dtype=x.dtype), stats.norm(-2, 0.5 * 0.5**0.5)),
    ],
    ids=["uniform_", "normal_", "normal"],
)
def test_both_parts_of_a_complex_number_have_the_distribution(
    function: Callable[..., Any], part: Any
) -> None:
    """Both parts follow it in eager PyTorch, too, where they are the last axis of a real tensor."""
    x = torch.zeros(N, dtype=torch.complex64)
    torch.manual_seed(0)
    eager = function(x).numpy()
    for values in (*draw(function, x), eager):
        assert follows(values.real, part)
        assert follows(values.imag, part)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_uniform_of_16_bits_stays_below_its_upper_end(dtype: torch.dtype) -> None:
    (values,) = draw(lambda x: torch.rand(x.shape, dtype=dtype), torch.zeros(N))
    wide = values.astype(numpy.float64)
    assert wide.min() >= 0
    assert wide.max() < 1
    assert abs(wide.mean() - 0.5) < 0.01


def equally_likely(values: Array, low: int, high: int) -> bool:
    assert values.min() >= low
    assert values.max() < high
    counts = numpy.bincount((values - low).astype(numpy.int64), minlength=high - low)
    return bool(stats.chisquare(counts).pvalue > SIGNIFICANCE)


def test_integers() -> None:
    assert equally_likely(draw(lambda x: torch.randint(7, x.shape), torch.zeros(N))[0], 0, 7)
    assert equally_likely(draw(lambda x: torch.randint(-3, 4, x.shape), torch.zeros(N))[0], -3, 4)
    (bytes_,) = draw(lambda x: torch.randint_like(x, 250, 256, dtype=torch.uint8), torch.zeros(N))
    assert equally_likely(bytes_, 250, 256)
    (wide,) = draw(lambda x: torch.randint(-(2**63), 2**63 - 1, x.shape), torch.zeros(N))
    assert follows(wide, stats.uniform(-(2.0**63), 2.0**64))


def test_geometric() -> None:
    (values,) = draw(lambda x: x.clone().geometric_(0.3), torch.zeros(N))
    assert values.min() == 1
    counts = numpy.array([(values == k).sum() for k in range(1, 11)])
    expected = stats.geom(0.3).pmf(range(1, 11))
    assert (
        stats.chisquare([*counts, N - counts.sum()], N * numpy.array([*expected, 1 - expected.sum()])).pvalue
        > SIGNIFICANCE
    )


def test_bernoulli() -> None:
    functions = [
        lambda x: torch.bernoulli(x, 0.3),
        lambda x: torch.bernoulli(x + 0.3),
        lambda x: x.clone().bernoulli_((x[0] + 0.3).double()),
    ]
    for function in functions:
        (values,) = draw(function, torch.zeros(N))
        assert set(numpy.unique(values)) == {0, 1}
        assert stats.binomtest(int(values.sum()), N, 0.3).pvalue > SIGNIFICANCE


@pytest.mark.parametrize(("p", "value"), [(0.0, 0), (1.0, 1)])
def test_certain_bernoulli(p: float, value: int) -> None:
    (values,) = draw(lambda x: torch.bernoulli(x, p), torch.zeros(N))
    assert (values == value).all()


def test_dropout_scales_what_it_keeps() -> None:
    values, mask = draw(lambda x: torch.native_dropout(x, 0.2, True), torch.ones(N))
    assert stats.binomtest(int(mask.sum()), N, 0.8).pvalue > SIGNIFICANCE
    numpy.testing.assert_array_equal(values, numpy.where(mask, numpy.float32(1.25), 0))


def test_dropout_of_everything_and_of_nothing() -> None:
    nothing, dropped = draw(lambda x: torch.native_dropout(x, 1.0, True), torch.full((4,), float("inf")))
    assert not nothing.any()
    assert not dropped.any()
    same, kept = draw(lambda x: torch.native_dropout(x, 0.5, False), torch.arange(4.0))
    numpy.testing.assert_array_equal(same, numpy.arange(4.0))
    assert kept.all()


def test_randomized_leaky_relu() -> None:
    x = torch.linspace(-1, 1, N)
    (y,) = draw(lambda x: torch.nn.functional.rrelu(x, 0.1, 0.4, training=True), x)
    positive = x.numpy() > 0
    numpy.testing.assert_array_equal(y[positive], x.numpy()[positive])
    assert follows((y / x.numpy())[~positive], stats.uniform(0.1, 0.3))


def test_permutations() -> None:
    (order,) = draw(lambda x: torch.randperm(x.shape[0]), torch.zeros(1000))
    numpy.testing.assert_array_equal(numpy.sort(order), numpy.arange(1000))
    assert abs(stats.spearmanr(order, numpy.arange(1000)).statistic) < 0.1


@pytest.mark.parametrize("replacement", [True, False])
def test_multinomial(replacement: bool) -> None:
    weights = torch.tensor([1.0, 0.0, 3.0, 4.0, 2.0])
    (first,) = draw(lambda w: torch.multinomial(w.expand(N, 5), 3, replacement), weights)
    assert first.shape == (N, 3)
    if not replacement:
        assert all(len(set(row)) == 3 for row in first)
    counts = numpy.bincount(first[:, 0], minlength=5)
    assert counts[1] == 0
    expected = N * weights.numpy() / 10
    assert stats.chisquare(counts[expected > 0], expected[expected > 0]).pvalue > SIGNIFICANCE


def test_multinomial_never_draws_what_weighs_nothing() -> None:
    weights = torch.tensor([0.0, 1.0, 0.0, 0.0, 2.0, 0.0])
    (drawn,) = draw(lambda w: torch.multinomial(w, N, True), weights)
    assert set(numpy.unique(drawn)) == {1, 4}


def two_draws(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.rand_like(x), torch.rand_like(x)


def test_one_seed_gives_one_result() -> None:
    first, again = draw(two_draws, torch.zeros(100)), draw(two_draws, torch.zeros(100))
    for one, other in zip(first, again, strict=True):
        numpy.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("seed", [(4, 14), (3, 15), (14, 3)])
def test_another_seed_gives_another_result(seed: tuple[int, int]) -> None:
    (first, _), (second, _) = draw(two_draws, torch.zeros(N)), draw(two_draws, torch.zeros(N), seed=seed)
    assert abs(numpy.corrcoef(first, second)[0, 1]) < 0.03


def test_two_operators_are_independent() -> None:
    first, second = draw(two_draws, torch.zeros(N))
    assert abs(numpy.corrcoef(first, second)[0, 1]) < 0.03
    assert abs(numpy.corrcoef(first[1:], second[:-1])[0, 1]) < 0.03
    assert abs(numpy.corrcoef(first[1:], first[:-1])[0, 1]) < 0.03
