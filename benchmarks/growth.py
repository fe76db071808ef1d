"""How time grows with size, compared with eager: one function per family of operators.

Both run on one core, in memory that the process keeps. So the times grow with the work alone: neither the
scheduling of threads nor the system's work on fresh pages hides or adds any.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import cycle
from statistics import linear_regression, median

import torch
from torch import nn
from torch.nn import functional

from .measure import Row, keep_memory, one_core, rounds_of

STEPS = (10, 100, 1_000, 10_000)
LENGTHS = (512, 1_024, 2_048, 4_096, 8_192)
ELEMENTS = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
SLACK = 0.1
"""How far the exponent may be above eager's: measurements spread by a quarter per tenfold size."""
SIZES_JUDGED = 3
"""How many of the largest sizes give the exponent: their time is work, not the fixed cost of a call."""
RESOLVED = 0.25
"""Work below this share of the fixed cost does not count. The two largest sizes are judged anyway."""
ROUNDS = 9
INPUTS = 5
"""How many inputs of a size take turns: the time of a selection depends on the numbers."""

CANDIDATES = ("eager", "torchstone")
Candidates = Mapping[str, Callable[[], object]]
Inputs = tuple[torch.Tensor, ...]
Function = Callable[..., object]


def rows() -> Iterator[Row]:
    keep_memory()
    with one_core():
        yield from recurrent_rows()
        yield from attention_rows()
        yield from size_rows()


def growth(name: str, sizes: Sequence[int], make: Callable[[int], Candidates]) -> Iterator[Row]:
    """Yield one row per size; the last one says whether ``torchstone`` grows no faster than ``eager``.

    ``make`` returns the candidates for a size. The candidates of all sizes take turns. The
    exponents of growth of their work are compared. A candidate's work is its time without the
    fixed cost of a call, which is estimated by the time at the smallest size. The time itself
    would not do: with a high fixed cost, it seems to grow slowly. The factor from the time at the
    smallest size to that at the largest is noted beside the exponent. The difference of the
    exponents is the slope of the ratio of both works. Each ratio is taken from measurements next
    to each other in time, so that a machine that slows down does so for both.
    """
    torch._dynamo.reset()
    turns = {f"{candidate} {size}": run for size in sizes for candidate, run in make(size).items()}
    taken = rounds_of(turns, budget_s=float(len(sizes)), rounds=ROUNDS)
    eager, ours = ([taken[f"{candidate} {size}"] for size in sizes] for candidate in CANDIDATES)
    typical = [
        dict(zip(CANDIDATES, map(median, both), strict=True)) for both in zip(eager, ours, strict=True)
    ]
    judged = _judged(typical)
    work = [row["eager"] - typical[0]["eager"] for row in typical[judged]]
    ratios = [
        median(
            (own - typical[0]["torchstone"]) / (other - typical[0]["eager"])
            for other, own in zip(*both, strict=True)
        )
        for both in zip(eager[judged], ours[judged], strict=True)
    ]
    exponent, difference = _slope(sizes[judged], work), _slope(sizes[judged], ratios)
    factors = {candidate: typical[-1][candidate] / typical[0][candidate] for candidate in CANDIDATES}
    for size, seconds in zip(sizes[:-1], typical, strict=False):
        yield Row(f"{name}, {size:,}", seconds, "eager")
    yield Row(
        f"{name}, {sizes[-1]:,}",
        typical[-1],
        "eager",
        f"exponent of growth ≤ eager's + {SLACK}",
        difference <= SLACK,
        {
            "exponent_eager": round(exponent, 2),
            "exponent_torchstone": round(exponent + difference, 2),
            "times_eager": round(factors["eager"]),
            "times_torchstone": round(factors["torchstone"]),
        },
    )


def _judged(typical: Sequence[Mapping[str, float]]) -> slice:
    """Return the largest sizes, as far as their work can be distinguished from the fixed cost."""
    first, fixed = len(typical) - SIZES_JUDGED, typical[0]
    while first < len(typical) - 2 and any(
        taken - fixed[name] < RESOLVED * fixed[name] for name, taken in typical[first].items()
    ):
        first += 1
    return slice(first, None)


def _slope(sizes: Sequence[int], values: Sequence[float]) -> float:
    """Return the slope of log(values) over log(sizes)."""
    positive = [max(one, sys.float_info.min) for one in values]
    return linear_regression(*(list(map(math.log, one)) for one in (sizes, positive))).slope


def recurrent_rows() -> Iterator[Row]:
    """LSTM, GRU and plain RNN over 10 to 10⁴ steps, forward and with gradients."""
    for kind in (nn.LSTM, nn.GRU, nn.RNN):
        for training in (False, True):
            what = "gradients" if training else "forward"
            yield from growth(f"{kind.__name__} {what}: steps", STEPS, partial(_recurrent, kind, training))


def _recurrent(kind: type[nn.RNNBase], training: bool, steps: int) -> Candidates:
    network, x = kind(16, 32), torch.randn(steps, 4, 16)
    compiled = torch.compile(network, backend="torchstone", fullgraph=True, dynamic=False)

    def run(function: Callable[..., tuple[torch.Tensor, object]]) -> None:
        with torch.set_grad_enabled(training):
            output = function(x)[0]
        if training:
            network.zero_grad()
            output.sum().backward()

    return {"eager": partial(run, network), "torchstone": partial(run, compiled)}


def attention_rows() -> Iterator[Row]:
    """Attention over sequences of 512 to 8,192, forward and with gradients."""
    for training in (False, True):
        what = "gradients" if training else "forward"
        yield from growth(f"attention {what}: length", LENGTHS, partial(_attention, training))


def _attention(training: bool, length: int) -> Candidates:
    attend = functional.scaled_dot_product_attention
    compiled = torch.compile(attend, backend="torchstone", fullgraph=True, dynamic=False)
    given = [torch.randn(1, 2, length, 32, requires_grad=training) for _ in range(3)]

    def run(function: Callable[..., torch.Tensor]) -> None:
        output = function(*given)
        if training:
            torch.autograd.grad(output.sum(), given)

    return {"eager": partial(run, attend), "torchstone": partial(run, compiled)}


def size_rows() -> Iterator[Row]:
    """Scans, sorts and bags of embeddings over 10³ to 10⁷ elements."""
    for name, (make, function) in SIZED.items():
        yield from growth(f"{name}: elements", ELEMENTS, partial(_sized, make, function))


def _numbers(size: int) -> Inputs:
    return (torch.rand(size),)


def _rows(size: int) -> Inputs:
    return (torch.rand(max(size // 1000, 1), 1000),)


def _bags(size: int) -> Inputs:
    """Indices into a table of 1,000 rows of 8, in bags of 10."""
    return torch.rand(1000, 8), torch.randint(0, 1000, (size // 8,)), torch.arange(0, size // 8, 10)


def _bag(mode: str, weight: torch.Tensor, indices: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    return functional.embedding_bag(indices, weight, offsets, mode=mode)


SIZED: dict[str, tuple[Callable[[int], Inputs], Function]] = {
    "cumsum": (_numbers, lambda x: x.cumsum(0)),
    "cumprod": (_numbers, lambda x: x.cumprod(0)),
    "cummax": (_numbers, lambda x: x.cummax(0)),
    "logcumsumexp": (_numbers, lambda x: x.logcumsumexp(0)),
    "cumsum of rows": (_rows, lambda x: x.cumsum(1)),
    "sort": (_numbers, lambda x: x.sort()),
    "sort of rows": (_rows, lambda x: x.sort(1)),
    "topk": (_numbers, lambda x: x.topk(10)),
    "kthvalue": (_numbers, lambda x: x.kthvalue(x.shape[0] // 3)),
    "median": (_numbers, lambda x: x.median()),
    "embedding_bag sum": (_bags, partial(_bag, "sum")),
    "embedding_bag mean": (_bags, partial(_bag, "mean")),
    "embedding_bag max": (_bags, partial(_bag, "max")),
}
"""For each name, a function that makes the inputs for a number of elements, and the function to measure."""


def _sized(make: Callable[[int], Inputs], function: Function, size: int) -> Candidates:
    compiled = torch.compile(function, backend="torchstone", fullgraph=True, dynamic=False)
    inputs = [make(size) for _ in range(INPUTS)]

    def in_turn(function: Function) -> Callable[[], object]:
        turns = cycle(inputs)
        return lambda: function(*next(turns))

    return {"eager": in_turn(function), "torchstone": in_turn(compiled)}
