"""The roofline: how fast a machine's peak arithmetic and peak memory bandwidth let some work run."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch

from ..runtime import get_engine


@dataclass(frozen=True)
class Peaks:
    """A machine's peaks: FLOP/s of a matrix product, and bytes/s of a copy too large for any cache."""

    flops: float
    bytes: float

    def least_seconds(self, flops: float, bytes: float) -> float:
        """Return the shortest time in which this machine can do the work."""
        return max(flops / self.flops, bytes / self.bytes)

    def bound(self, flops: float, bytes: float) -> Literal["compute", "memory"]:
        """Return which of the two peaks limits the work."""
        return "compute" if flops / self.flops > bytes / self.bytes else "memory"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def measure_peaks() -> Peaks:
    """Measure the peaks of the CPU, or of the GPU that the setting ``device`` names; takes about two seconds.

    Raises what :func:`~torchstone.runtime.get_engine` raises if there is no such engine or device.
    """
    place = measured_device()
    return Peaks(_peak_of_products(place), _peak_of_memory(place))


def measured_device() -> torch.device:
    """Return PyTorch's device for the engine that the settings name: a GPU, or else the CPU."""
    return getattr(get_engine(), "torch_device", None) or torch.device("cpu")


def seconds_per_call(call: Callable[[], object], seconds: float) -> float:
    """Return the mean seconds per call, including work on a GPU.

    Makes at least two calls, and goes on for about ``seconds``.
    """
    started, count, next_ones = time.perf_counter(), 0, 2
    while True:
        for _ in range(next_ones):
            call()
        wait_for_gpu()  # calls are queued on a GPU much faster than it runs them
        count += next_ones
        elapsed = time.perf_counter() - started
        if elapsed >= seconds:
            return elapsed / count
        next_ones = max(1, int(count * (seconds - elapsed) / elapsed / 2))


def wait_for_gpu() -> None:
    """Wait until the GPU that this process uses in PyTorch, if any, has finished its work."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def _peak_of_products(place: torch.device) -> float:
    """Return the FLOP/s of a matrix product in PyTorch or in the engine, whichever is faster."""
    size = 1536 if place.type == "cpu" else 8192
    x = torch.randn(size, size, device=place)
    ours = torch.compile(torch.mm, backend="torchstone")
    calls: list[Callable[[], object]] = [lambda: x @ x, lambda: ours(x, x)]
    for call in calls:
        seconds_per_call(call, 0.1)
    return float(2 * size**3 / min(seconds_per_call(call, 0.1) for call in calls * 3))


def _peak_of_memory(place: torch.device) -> float:
    source = torch.ones(1 << 26, device=place)
    target = torch.empty_like(source)
    return float(
        2 * source.nbytes / min(seconds_per_call(lambda: target.copy_(source), 0.05) for _ in range(4))
    )
