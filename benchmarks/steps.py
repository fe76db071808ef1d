"""A whole training step compared with ``torch.compile`` and the optimizer in eager PyTorch, model by model.

Each model has a process of its own, in which both candidates take turns in short blocks of steps, in random
order. The two blocks of a turn follow each other at once, so whatever slows the machine slows both: the
ratio of their times varies much less than the times do. The first steps of a block are not timed: caches,
pages, and threads are then as the other candidate left them, which no training loop meets.
"""

from __future__ import annotations

import copy
import json
import math
import random
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence

import torch

from .candidate_run import settle, sgd, training
from .measure import Row
from .networks import NETWORKS, TRAINING_BATCH

CANDIDATES = ("step", "torchstone")
"""The whole step, and what it is compared with."""
BOUND = "whole step ≤ torch.compile with eager SGD"
_SECONDS, _BLOCK_S = 15.0, 0.2
_SETTLING, _LEAST_TURNS = 2, 9
_TIMEOUT_S = 900


def rows() -> Iterator[Row]:
    """Measure every model of the suite."""
    for name in NETWORKS:
        yield row(name, _in_child(name))


def row(name: str, turns: Sequence[tuple[float, float]]) -> Row:
    """Return the line of a model from its turns: seconds per call of each of the candidates."""
    ratios = [compiled / step for step, compiled in turns]
    low, high = interval(ratios)
    return Row(
        f"{name}, batch {TRAINING_BATCH[name]}",
        {one: statistics.median(turn[i] for turn in turns) for i, one in enumerate(CANDIDATES)},
        CANDIDATES[0],
        BOUND,
        statistics.median(ratios) >= 1,
        {
            "compile/step": f"{statistics.median(ratios):.3f}",
            "95%": f"{low:.3f} to {high:.3f}",
            "turns": len(turns),
        },
    )


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return a 95 % confidence interval of the median, which assumes nothing about the distribution."""
    ordered, count = sorted(values), len(values)
    skipped, tail = 0, 1 / 2**count
    while skipped < (count - 1) // 2 and tail + math.comb(count, skipped + 1) / 2**count <= 0.025:
        skipped += 1
        tail += math.comb(count, skipped) / 2**count
    return ordered[skipped], ordered[-1 - skipped]


def run(model: str, seconds: float = _SECONDS) -> list[tuple[float, float]]:
    """Return the turns of one model, measured in this process for ``seconds`` or at least nine turns."""
    torch.manual_seed(0)
    network, args = NETWORKS[model](TRAINING_BATCH[model])
    network.train()
    calls: list[Callable[[], object]] = []
    for name in CANDIDATES:
        own = copy.deepcopy(network)
        calls.append(training(name, own, args, sgd(own)))
        settle(calls[-1])
    counts = [max(1, round(_BLOCK_S / _block(call, 3, 0))) for call in calls]
    order, chance = list(range(len(calls))), random.Random(0)
    turns: list[tuple[float, float]] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(turns) < _LEAST_TURNS:
        chance.shuffle(order)
        took = {place: _block(calls[place], counts[place], min(counts[place], _SETTLING)) for place in order}
        turns.append((took[0], took[1]))
    return turns


def _block(call: Callable[[], object], count: int, settling: int) -> float:
    """Return the seconds per call of ``count`` calls after ``settling`` other ones."""
    for _ in range(settling):
        call()
    started = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - started) / count


def _in_child(model: str) -> list[tuple[float, float]]:
    command = [sys.executable, "-m", "benchmarks.steps", model]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    if done.returncode:
        raise RuntimeError(f"{model}: {done.stderr.strip()[-2000:]}")
    return [(step, compiled) for step, compiled in json.loads(done.stdout.strip().splitlines()[-1])]


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(json.dumps(run(sys.argv[1])))
