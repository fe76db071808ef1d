"""The statistics of random answers: which answers pass, and which mistakes are found."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from optest.torch.opinfo.calls import Call, evaluate
from optest.torch.opinfo.distribution import _CONTROL, _dependent, _exact, differs, one_value
from optest.torch.opinfo.phases import Case
from optest.torch.opinfo.samples import Bound

RNG = np.random.default_rng(0)


def rows(repeats: int = 32, size: int = 64) -> np.ndarray:
    return RNG.normal(size=(repeats, size))


def test_the_same_distribution_passes() -> None:
    assert not any(differs(rows(), rows()) for _ in range(200))


def test_elements_that_depend_on_each_other_pass() -> None:
    """Whole channels are dropped together, so many elements hold few independent numbers."""

    def masks() -> np.ndarray:
        return np.repeat(RNG.random((32, 4)) < 0.5, 64, axis=1).astype(np.float64)

    assert not any(differs(masks(), masks()) for _ in range(200))


def test_tails_without_a_variance_pass() -> None:
    """Each repeat depends on one latent number, as the gradients of singular vectors do."""

    def heavy() -> np.ndarray:
        return np.outer(RNG.standard_t(1, size=64), [1.0, -2.0, 0.5])

    found = [differs(heavy(), heavy()) for _ in range(200)]
    assert not any("correlated" in one for one in found), found
    walk = np.cumsum(np.sign(heavy()), axis=0) ** 3
    assert "correlated" in _dependent(walk, 1e-6)


def masked(scale: float, kept: float = 0.5) -> np.ndarray:
    return np.where(RNG.random((32, 64)) < kept, 322.63 * scale, 0.0)


def test_few_values_that_are_rounded_apart_are_the_same() -> None:
    assert differs(masked(1.0), masked(1.0 + 1e-7)) == ""
    assert differs(masked(1.0), masked(1.0 + 1e-7, kept=0.8))
    assert differs(masked(1.0), masked(1.01))


@pytest.mark.parametrize(
    ("got", "message"),
    [
        (rows() + 0.5, "another distribution|mean"),
        (rows() * 1.5, "another distribution|second moment"),
        (np.repeat(rows(1), 32, axis=0), "the stream does not advance"),
        (np.repeat(rows(16), 2, axis=0), "the stream comes back"),
        (np.cumsum(rows(), axis=0) / 4, "distribution|correlated|moment"),
        (np.full((32, 64), np.nan), "NaN"),
    ],
    ids=["mean", "scale", "still", "reused", "walk", "nan"],
)
def test_other_distributions_and_dependent_streams_are_found(got: np.ndarray, message: str) -> None:
    found = differs(got, rows())
    assert found
    assert any(part in found for part in message.split("|")), found


def test_constants_and_empty_results_pass() -> None:
    assert differs(np.zeros((8, 0)), np.zeros((8, 0))) == ""
    assert differs(np.ones((8, 4)), np.ones((8, 4))) == ""


def test_what_is_drawn_does_not_show_in_rounding_errors() -> None:
    noise = (RNG.normal(size=(8, 4)) * 1e-7).astype(np.float32)
    assert one_value([*noise, *np.zeros((8, 4), np.float32)])
    assert one_value([*(1 + noise)])
    assert not one_value([*noise, np.full(4, 1e-3, np.float32)])
    assert not one_value(list(np.eye(2, dtype=np.int64)))


def test_a_wider_dtype_makes_the_same_draws() -> None:
    scores = 20 * torch.rand(4, 6, generator=torch.Generator().manual_seed(0))
    bound = Bound(lambda x: torch.dropout(x.exp(), 0.5, train=True), (scores,), {})
    case = Case(0, bound, Call(bound.function(), (scores,)), "")
    torch.manual_seed(_CONTROL)
    expected = np.stack([evaluate(case.call)[0].numpy() for _ in range(8)])
    (exact,) = _exact(case, 8, [0])
    assert exact.dtype == np.float64
    assert 0 < np.abs(exact - expected).max() < 1e-6 * expected.max()
