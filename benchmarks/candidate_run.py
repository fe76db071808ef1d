"""Measures one model in one process: eager, Inductor and Torchstone take turns in blocks of calls.

Training has a fourth candidate: the whole step as one program, by ``torchstone.compile_step``.

``python -m benchmarks.candidate_run MODEL MODE BATCH SECONDS`` prints one JSON record. The machine's
peaks are measured in the same process, so that a time can be compared with its limit. If the setting
``device`` names a GPU that PyTorch can use too, all candidates run there.
"""

from __future__ import annotations

import copy
import importlib.metadata
import json
import os
import platform
import resource
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils.flop_counter import FlopCounterMode

import torchstone
from torchstone.profiling.roofline import measure_peaks, measured_device, seconds_per_call, wait_for_gpu

from .networks import NETWORKS

CANDIDATES = {
    "inference": ("eager", "torchstone", "inductor"),
    "training": ("eager", "torchstone", "step", "inductor"),
}

LEFT_TO_EAGER = ("lstm", "gru")
"""Dynamo captures recurrent networks for Torchstone only. If it meets one for Inductor, it skips that code
with every backend from then on. So Inductor has no figure for these networks: it would be eager's."""

BLOCKS = 6
_SETTLE_S = 0.05
_CHOOSING_CALLS, _CHOOSING_S = 80, 2.5
"""The steps and the seconds after which a compiled step has compared its program with eager PyTorch."""


def run(model: str, mode: str, batch: int, seconds: float) -> dict[str, Any]:
    """Return the figures of one model in ``mode`` (``inference`` or ``training``)."""
    torch.manual_seed(0)
    network, args = NETWORKS[model](batch)
    network.train(mode == "training")
    place = measured_device()
    network, args = network.to(place), pytree.tree_map_only(torch.Tensor, lambda one: one.to(place), args)
    peaks = measure_peaks()
    calls: dict[str, Callable[[], object]] = {}
    first: dict[str, float] = {}
    failed: dict[str, str] = {}
    for name in CANDIDATES[mode]:
        if name == "inductor" and model in LEFT_TO_EAGER:
            failed[name] = "leaves recurrent networks to eager PyTorch"
            continue
        own = copy.deepcopy(network)
        call = training(name, own, args, sgd(own)) if mode == "training" else _inference(name, own, args)
        started = time.perf_counter()
        try:
            call()
            wait_for_gpu()
        except Exception as error:  # noqa: BLE001 - a candidate's failure is a result, whatever it raises
            failed[name] = f"{type(error).__name__}: {error}"[:300]
            continue
        first[name] = time.perf_counter() - started
        if name == "step":
            settle(call)
        calls[name] = call
    blocks = in_blocks(calls, seconds)
    flops, moved = _work(network, args, mode)
    return {
        "model": model,
        "mode": mode,
        "batch": batch,
        "machine": f"{_processor()}, {torch.get_num_threads()} threads"
        if place.type == "cpu"
        else torch.cuda.get_device_name(place),
        "versions": {name: importlib.metadata.version(name) for name in ("torch", "jax", "torchstone")},
        "load_before": os.getloadavg()[0],
        "peaks": peaks.to_dict(),
        "flops": flops,
        "bytes": moved,
        "limit_s": peaks.least_seconds(flops, moved),
        "seconds": blocks,
        "single_s": _single_calls(calls, seconds / 4),
        "first_call_s": first,
        "failed": failed,
        "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def settle(step: Callable[[], object]) -> None:
    """Make steps until the compiled step has chosen between its program and eager PyTorch."""
    end = time.perf_counter() + _CHOOSING_S
    for _ in range(_CHOOSING_CALLS):
        step()
    while time.perf_counter() < end:
        step()


_EXTENSIONS = ("avx2", "avx512f", "avx512_fp16", "amx_tile")


def _processor() -> str:
    """Return the processor's name, and its instruction sets that make kernels differ."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    said = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    flags = said.get("flags", "").split()
    return ", ".join(
        [said.get("model name", platform.machine()), *(one for one in _EXTENSIONS if one in flags)]
    )


def in_blocks(calls: Mapping[str, Callable[[], object]], seconds: float) -> dict[str, list[float]]:
    """Return the seconds per call of each block. A block settles first, undisturbed by the one before."""
    share = seconds / BLOCKS / max(len(calls), 1)
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        seconds_per_call(call, share / 4)  # warm up
    for turn in range(BLOCKS):
        order = list(calls)[:: 1 if turn % 2 == 0 else -1]
        for name in order:
            seconds_per_call(calls[name], min(_SETTLE_S, share / 4))
            samples[name].append(seconds_per_call(calls[name], share))
    return samples


def _single_calls(calls: Mapping[str, Callable[[], object]], seconds: float) -> dict[str, float]:
    """Return the median seconds of single calls that take turns.

    They include what it costs that other candidates have left threads and memory pages behind.
    """
    samples: dict[str, list[float]] = {name: [] for name in calls}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for name, call in calls.items():
            started = time.perf_counter()
            call()
            wait_for_gpu()
            samples[name].append(time.perf_counter() - started)
    return {name: statistics.median(values) for name, values in samples.items() if values}


def _function(name: str, network: torch.nn.Module) -> Callable[..., Any]:
    return network if name == "eager" else torch.compile(network, backend=name)


def _inference(name: str, network: torch.nn.Module, args: tuple[Any, ...]) -> Callable[[], object]:
    function = _function(name, network)

    def call() -> object:
        with torch.no_grad():
            return function(*args)

    return call


def sgd(network: torch.nn.Module) -> torch.optim.Optimizer:
    """The optimizer of all candidates."""
    return torch.optim.SGD(network.parameters(), lr=1e-4, momentum=0.9)


def training(
    name: str, network: torch.nn.Module, args: tuple[Any, ...], optimizer: torch.optim.Optimizer
) -> Callable[[], object]:
    """Return a function that does one training step as the candidate ``name`` does it."""
    if name == "step":
        whole = torchstone.compile_step(network, optimizer, lambda model, batch: _loss(model(*batch)))
        return lambda: whole(args)
    function = _function(name, network)

    def step() -> None:
        optimizer.zero_grad()
        _loss(function(*args)).backward()
        optimizer.step()

    return step


def _loss(outputs: Any) -> torch.Tensor:
    leaves = [o for o in pytree.tree_leaves(outputs) if isinstance(o, torch.Tensor) and o.requires_grad]
    return torch.stack([leaf.float().square().mean() for leaf in leaves]).sum()


def _work(network: torch.nn.Module, args: tuple[Any, ...], mode: str) -> tuple[float, float]:
    """Return the FLOPs of one call (products and convolutions), and the least bytes of weights it moves."""
    copied = copy.deepcopy(network)
    with FlopCounterMode(display=False) as counter:
        outputs = copied(*args)
        if mode == "training":
            _loss(outputs).backward()
    weights = sum(p.numel() * p.element_size() for p in network.parameters())
    # A step reads weights, gradients and momentum, and writes all three.
    return float(counter.get_total_flops()), float(weights * (6 if mode == "training" else 1))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(json.dumps(run(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))))
