"""The checks of random answers position by position: which pass, and which mistakes are found."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

pytest.importorskip("torch")

from optest.torch.opinfo.positions import misplaced

REPEATS = 128
CHANCE = 1e-6
RNG = np.random.default_rng(0)
PLACES = RNG.permutation(np.linspace(0.05, 0.95, 24)).reshape(2, 3, 4)
"""A different number for each element."""
HALF = np.full(12, 0.5)
MOVED = "other values|another spread|one value"


@pytest.fixture(autouse=True)
def _seeded() -> None:
    RNG.bit_generator.state = np.random.default_rng(1).bit_generator.state


def uniform(*shape: int) -> np.ndarray:
    return RNG.random((REPEATS, *shape)).astype(np.float32)


def bernoulli(probability: np.ndarray = PLACES) -> np.ndarray:
    return (RNG.random((REPEATS, *probability.shape)) < probability).astype(np.float32)


def normal(mean: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    return (mean + deviation * RNG.normal(size=(REPEATS, *mean.shape))).astype(np.float32)


def permutation(size: int) -> np.ndarray:
    return np.stack([RNG.permutation(size) for _ in range(REPEATS)])


def windows(step: int, size: int) -> np.ndarray:
    """Return repeats that overlap in one stream, because each starts only ``step`` numbers further."""
    stream = RNG.random(REPEATS * step + size)
    return np.stack([stream[step * i : step * i + size] for i in range(REPEATS)])


def with_one(values: np.ndarray, change: Callable[[np.ndarray], object]) -> np.ndarray:
    change(values)
    return values


DRAWS: dict[str, Callable[[], np.ndarray]] = {
    "uniform": lambda: uniform(4, 5),
    "bernoulli": bernoulli,
    "normal": lambda: normal(PLACES, 1 - PLACES),
    "cauchy": lambda: RNG.standard_cauchy((REPEATS, 6)),
    "permutation": lambda: permutation(7),
    "channels": lambda: np.repeat(bernoulli(PLACES[0, 0]), 5, axis=1),
    "complex": lambda: uniform(6) + 1j * uniform(6),
    "constant": lambda: np.ones((REPEATS, 4), np.float32),
    "empty": lambda: np.ones((REPEATS, 0, 2)),
    "bfloat16": lambda: uniform(40).astype("bfloat16"),
}


@pytest.mark.parametrize("name", DRAWS)
def test_the_same_distribution_passes(name: str) -> None:
    """Right answers pass eight times at a chance of one in a hundred: they are far from the limits."""
    draw = DRAWS[name]
    assert [misplaced([draw()], [draw()], 1e-2) for _ in range(8)] == [""] * 8


@pytest.mark.parametrize(
    ("got", "want", "message"),
    [
        (lambda: bernoulli()[:, ::-1], bernoulli, MOVED),
        (lambda: bernoulli()[..., ::-1], bernoulli, MOVED),
        (lambda: np.roll(bernoulli(), 1, -1), bernoulli, MOVED),
        (lambda: bernoulli().swapaxes(1, 2).reshape(-1, 2, 3, 4), bernoulli, MOVED),
        (lambda: bernoulli(np.full((2, 3, 4), 0.5)), bernoulli, MOVED),
        (lambda: normal(PLACES, PLACES)[..., ::-1], lambda: normal(PLACES, PLACES), "values"),
        (
            lambda: normal(0 * PLACES, PLACES[::-1, ::-1]),
            lambda: normal(0 * PLACES, PLACES),
            "spread",
        ),
        (
            lambda: with_one(uniform(4, 5), lambda x: x[:, 1, 2].fill(0.5)),
            lambda: uniform(4, 5),
            r"element \[1, 2\] takes one value more",
        ),
        (
            lambda: with_one(uniform(4, 5), lambda x: x.__setitem__(np.s_[:], x[:, :, :1])),
            lambda: uniform(4, 5),
            "fewer different values",
        ),
        (lambda: np.repeat(bernoulli(HALF[:3]), 4, axis=1), lambda: bernoulli(HALF), "depend"),
        (lambda: np.tile(bernoulli(HALF[:6]), 2), lambda: bernoulli(HALF), "depend"),
        (lambda: np.sort(uniform(6), 1), lambda: uniform(6), MOVED),
        (lambda: RNG.integers(0, 10, (REPEATS, 10)), lambda: permutation(10), "different values"),
        (
            lambda: (np.arange(10) + RNG.integers(0, 10, (REPEATS, 1))) % 10,
            lambda: permutation(10),
            "depend",
        ),
        (lambda: windows(1, 20), lambda: uniform(20), "successive repeats"),
        (lambda: windows(2, 20), lambda: uniform(20), "successive repeats"),
        (lambda: uniform(9).astype("bfloat16") * 0 + 1, lambda: uniform(9).astype("bfloat16"), "one value"),
        (lambda: (uniform(6) + 1j * uniform(6)).conj(), lambda: uniform(6) + 1j * uniform(6), "values"),
        (lambda: np.zeros(REPEATS), lambda: uniform(), "one value"),
    ],
    ids=[
        "reversed", "reversed-last", "shifted", "transposed", "one-probability", "normal-reversed",
        "deviations-reversed", "one-element-still", "constant-along-an-axis", "channels-for-elements",
        "second-half-again", "sorted", "not-a-permutation", "rotations", "stream-by-one", "stream-by-two",
        "narrow-constant", "conjugated", "0-d-constant",
    ],
)  # fmt: skip
def test_what_is_in_the_wrong_place_or_depends_on_something_is_found(
    got: Callable[[], np.ndarray], want: Callable[[], np.ndarray], message: str
) -> None:
    found = misplaced([got()], [want()], CHANCE)
    assert re.search(message, found), found


def test_results_that_do_not_belong_together_are_found() -> None:
    """Values and the indices that belong to them are each right alone, but do not match each other."""
    values, others = uniform(4, 6), uniform(4, 6)
    eager = uniform(4, 6)
    want = [eager, (10 * eager).astype(np.int64)]
    assert misplaced([values, (10 * values).astype(np.int64)], want, CHANCE) == ""
    assert "pairs of elements" in misplaced([values, (10 * others).astype(np.int64)], want, CHANCE)


def test_rounding_errors_are_no_difference() -> None:
    """Masked values that two implementations round differently pass, as do elements that vary by rounding."""
    inputs = RNG.normal(size=30)

    def masked(scale: float) -> np.ndarray:
        noise = 1 + 1e-7 * RNG.normal(size=(REPEATS, 30))
        return np.where(RNG.random((REPEATS, 30)) < 0.5, 2 * scale * inputs, inputs * noise).astype(
            np.float32
        )

    assert misplaced([masked(1 + 3e-7)], [masked(1.0)], CHANCE) == ""
    assert misplaced([masked(1.01)], [masked(1.0)], CHANCE)


def test_false_alarms_are_as_rare_as_they_are_said_to_be() -> None:
    """At a chance of one in a hundred, at most four of a hundred right answers may fail."""
    found = [misplaced([bernoulli(PLACES[0, 0])], [bernoulli(PLACES[0, 0])], 1e-2) for _ in range(100)]
    assert sum(map(bool, found)) <= 4


def test_sums_that_round_by_large_terms_are_one_value() -> None:
    """As in attention with dropout, an element near 6 has an error of 4e-5, from terms near 1,000."""
    kept = [bernoulli(np.full(8, 0.5)) for _ in range(2)]
    sizes = np.array([6, *[1000] * 7], np.float32)
    got, want = (side * sizes for side in kept)
    got[:, 0] *= np.float32(1 + 7e-6)
    assert misplaced([got], [want], CHANCE) == ""


def test_errors_that_eager_makes_itself_count_as_rounding() -> None:
    got, want = (bernoulli(np.full(8, 0.5)) for _ in range(2))
    assert re.search(MOVED, misplaced([got * 1.0002], [want], CHANCE))
    exact = want * 1.0001
    assert misplaced([got * 1.0002], [want], CHANCE, [exact]) == ""
    assert re.search(MOVED, misplaced([got * 1.01], [want], CHANCE, [exact]))
    assert re.search(MOVED, misplaced([got * 1.0002], [want], CHANCE, [exact[::-1]])), "other draws"
    exact[:, 0] = want[:, 0]
    assert "element [0]" in misplaced([got * 1.0002], [want], CHANCE, [exact]), "one is exact"


def test_what_is_nothing_beside_the_largest_value_is_not_another_one() -> None:
    got, want = (bernoulli(np.full(8, 0.5)) for _ in range(2))
    want[want == 0] = 1e-30 * RNG.random((want == 0).sum())
    assert misplaced([got], [want], CHANCE) == ""
