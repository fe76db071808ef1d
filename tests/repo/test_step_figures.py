"""The benchmark of whole steps: its interval, its verdict, and one short measurement."""

from __future__ import annotations

import pytest
from benchmarks import steps


def test_the_interval_leaves_out_what_is_unlikely() -> None:
    assert steps.interval([3.0]) == (3, 3)
    assert steps.interval(range(5)) == (0, 4), "five values have no interval of 95 %"
    # With 9 values, one on each side: the median is outside with 2 * 10 / 512. With two, with 2 * 46 / 512.
    assert steps.interval(range(9)) == (1, 7)
    assert steps.interval(range(100, 0, -1)) == (40, 61)


@pytest.mark.parametrize(("compiled", "held"), [(2.0, True), (0.9, False)])
def test_a_slower_step_misses_the_bound(compiled: float, held: bool) -> None:
    row = steps.row("mlp", [(1.0, compiled), (2.0, 2 * compiled), (0.5, 0.5 * compiled)])
    assert row.held is held
    assert row.ratio("torchstone") == compiled
    assert row.notes["turns"] == 3


def test_a_model_is_measured() -> None:
    found = steps.run("mlp", seconds=0.0)
    assert len(found) >= 9
    assert all(step > 0 and compiled > 0 for step, compiled in found)
