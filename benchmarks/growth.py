"""How the time of loops grows with their size, beside eager: one function per family of operators."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import torch
from torch import nn

from .measure import Row, paired

STEPS = (10, 100, 1_000, 10_000)
SLACK = 0.1
"""How far the exponent may be above eager's: a quarter more per tenfold size, the spread of measurements."""

Candidates = Mapping[str, Callable[[], object]]


def rows() -> Iterator[Row]:
    yield from recurrent_rows()


def growth(name: str, sizes: Sequence[int], make: Callable[[int], Candidates]) -> Iterator[Row]:
    """One row per size; the last one says whether ``torchstone`` grows no faster than ``eager``.

    ``make`` gives the candidates for a size. What is compared is the exponent of
    growth: the slope of log(seconds) over log(size), through all sizes.
    """
    measured: list[dict[str, float]] = []
    for size in sizes:
        seconds = paired(make(size), budget_s=1.0, rounds=5)
        measured.append(seconds)
        if size != sizes[-1]:
            yield Row(f"{name}, {size:,}", seconds, "eager")
            continue
        exponents = {candidate: _slope(sizes, [row[candidate] for row in measured]) for candidate in seconds}
        yield Row(
            f"{name}, {size:,}",
            seconds,
            "eager",
            f"exponent of growth ≤ eager's + {SLACK}",
            exponents["torchstone"] <= exponents["eager"] + SLACK,
            {f"exponent_{candidate}": round(slope, 2) for candidate, slope in exponents.items()},
        )


def _slope(sizes: Sequence[int], seconds: Sequence[float]) -> float:
    logarithms = [list(map(math.log, values)) for values in (sizes, seconds)]
    return statistics.linear_regression(*logarithms).slope


def recurrent_rows() -> Iterator[Row]:
    """LSTM, GRU and plain RNN over 10 to 10⁴ steps, forward and with gradients."""
    for kind in (nn.LSTM, nn.GRU, nn.RNN):
        for training in (False, True):
            what = "gradients" if training else "forward"
            yield from growth(f"{kind.__name__} {what}: steps", STEPS, partial(_recurrent, kind, training))


def _recurrent(kind: type[nn.RNNBase], training: bool, steps: int) -> Candidates:
    torch._dynamo.reset()
    network, x = kind(16, 32), torch.randn(steps, 4, 16)
    compiled = torch.compile(network, backend="torchstone", fullgraph=True)

    def run(function: Callable[..., tuple[torch.Tensor, object]]) -> None:
        with torch.set_grad_enabled(training):
            output = function(x)[0]
        if training:
            network.zero_grad()
            output.sum().backward()

    return {"eager": partial(run, network), "torchstone": partial(run, compiled)}
