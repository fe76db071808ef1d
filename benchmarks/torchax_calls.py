"""What a call costs in torchax's eager mode: ``python -m benchmarks.torchax_calls`` prints seconds.

This runs in a process of its own, because PyTorch has room for only one device of this kind. torchax 0.0.13
cannot be imported with PyTorch 2.13, which has dropped overloads that torchax names. Here they get stand-ins,
which no call reaches.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from .device_overhead import CALLS, WARM_UP, chain
from .measure import paired


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
    """Return the median for the chain of calls that the device is measured with. It waits for each chain."""
    with _dropped_overloads_named():
        importlib.import_module("torchax").enable_globally()
    run: Any = chain("jax")

    def call() -> object:
        return run().jax().block_until_ready()

    for _ in range(WARM_UP):
        call()
    return paired({"torchax": call})["torchax"] / CALLS


if __name__ == "__main__":
    print(seconds_per_call())
