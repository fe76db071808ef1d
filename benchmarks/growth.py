"""How the time of loops grows with their size, beside eager: one function per family of operators."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import torch
from torch import nn

from .measure import Row, paired

STEPS = (10, 100, 1_000, 10_000)
SLACK = 1.25
"""What the growth may be above eager's: the spread of two measurements."""

Candidates = Mapping[str, Callable[[], object]]


def rows() -> Iterator[Row]:
    yield from recurrent_rows()


def growth(name: str, sizes: Sequence[int], make: Callable[[int], Candidates]) -> Iterator[Row]:
    """One row per size; the last one says whether ``torchstone`` grew no faster than ``eager``.

    ``make`` gives the candidates for a size.
    """
    first: dict[str, float] = {}
    for size in sizes:
        seconds = paired(make(size))
        first = first or seconds
        grown = {candidate: seconds[candidate] / first[candidate] for candidate in seconds}
        if size != sizes[-1]:
            yield Row(f"{name}, {size:,}", seconds, "eager")
            continue
        yield Row(
            f"{name}, {size:,}",
            seconds,
            "eager",
            f"growth from {sizes[0]:,} ≤ {SLACK} × eager's",
            grown["torchstone"] <= SLACK * grown["eager"],
            {f"growth_{candidate}": round(factor) for candidate, factor in grown.items()},
        )


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
