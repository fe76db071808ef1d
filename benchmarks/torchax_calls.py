"""What a call costs in torchax's eager mode: ``python -m benchmarks.torchax_calls`` prints seconds.

It is a process of its own, because PyTorch has room for one device of this kind. torchax 0.0.13 does not
import with PyTorch 2.13, which has dropped overloads that it names. They get stand-ins here, which no call
reaches.
"""

from __future__ import annotations

import importlib
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

CALLS, ROUNDS = 100, 30


@contextmanager
def _dropped_overloads_named() -> Iterator[None]:
    packet = type(torch.ops.aten.add)
    real = packet.__getattr__

    def named(self: Any, name: str) -> Any:
        try:
            return real(self, name)
        except AttributeError:
            if name.startswith("__"):
                raise
            return real(self, self.overloads()[0])

    packet.__getattr__ = named
    try:
        yield
    finally:
        packet.__getattr__ = real


def seconds_per_call() -> float:
    """The median over rounds of a chain of pointwise calls on 64 floats, each waited for at its end."""
    with _dropped_overloads_named():
        importlib.import_module("torchax").enable_globally()
    x, y = torch.randn(64).to("jax"), torch.randn(64).to("jax")

    def chain() -> float:
        started, z = time.perf_counter(), x
        for _ in range(CALLS // 4):
            z = (z + y).mul(y).sub(y).relu()
        z.jax().block_until_ready()
        return (time.perf_counter() - started) / CALLS

    for _ in range(3):
        chain()
    return statistics.median(chain() for _ in range(ROUNDS))


if __name__ == "__main__":
    print(seconds_per_call())
