"""The peak memory of a training step: eager PyTorch, ``torch.compile`` with its optimizer, a whole step.

Each candidate runs in a process of its own, whose allocator gives freed memory back at once, so that resident
memory is memory in use. A step's memory is the sum of two parts. One is what lives between steps (parameters,
buffers, gradients, the optimizer's state, the batch). The other is the rise of resident memory while a step
runs, but at least what the engine reports for its program's intermediate values. A whole step is measured
after it has chosen between its program and eager PyTorch: until then, both keep memory. Graphs and code that
compilers keep do not depend on the batch and are left out; ``process`` includes them.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import torchstone

from .candidate_run import settle, sgd, training
from .networks import CLASSICS, NETWORKS, TRAINING_BATCH

CANDIDATES = ("eager", "torchstone", "step")
BOUND = 1.1
"""How many times eager's memory a whole step may take."""
COLUMNS = (
    "model",
    "eager, MiB",
    "torch.compile, MiB",
    "whole step, MiB",
    "torch.compile ×",
    "whole step ×",
    "between steps, MiB",
    "engine's own, MiB",
    "process, MiB",
)
_WARM_UP, _STEPS = 4, 5
_GIVEN_BACK = {
    "MALLOC_MMAP_THRESHOLD_": "65536",
    "MALLOC_TRIM_THRESHOLD_": "0",
    "TORCHSTONE_KEEP_MEMORY": "0",
}
"""Settings for glibc's allocator: larger blocks come from the system, and return to it when they are freed.

The setting ``keep_memory`` would undo that, and keep freed blocks in pieces for the next call.
"""

Figures = Mapping[str, int]
"""The figures of one candidate, in bytes."""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks memory", description=__doc__)
    parser.add_argument("--models", default=",".join(CLASSICS), help="default: %(default)s")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--markdown", action="store_true", help="print the table for a page")
    options = parser.parse_args(arguments)
    names = options.models.split(",")
    if unknown := sorted(set(names) - set(NETWORKS)):
        parser.error(f"unknown models: {', '.join(unknown)}")
    found = {name: {one: _in_child(name, one) for one in CANDIDATES} for name in names}
    rows = [row(name, figures) for name, figures in found.items()]
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if options.markdown:
        lines = [COLUMNS, ["---"] * len(COLUMNS), *rows]
        print("\n".join(f"| {' | '.join(line)} |" for line in lines))
    else:
        table = Table(*COLUMNS, title="peak memory of a training step")
        for line in rows:
            table.add_row(*line)
        Console().print(table)
    missed = [name for name, figures in found.items() if ratio(figures) > BOUND]
    if missed:
        print(f"more than {BOUND} × eager's: {', '.join(missed)}", file=sys.stderr)
    return 1 if missed else 0


def ratio(found: Mapping[str, Figures], candidate: str = "step") -> float:
    """Return the memory of a candidate's step divided by that of eager's."""
    return found[candidate]["step"] / found["eager"]["step"]


def row(name: str, found: Mapping[str, Figures]) -> list[str]:
    return [
        name,
        *(_mib(found[one]["step"]) for one in CANDIDATES),
        *(f"{ratio(found, one):.2f}" for one in CANDIDATES[1:]),
        " / ".join(_mib(found[one]["between"]) for one in CANDIDATES),
        _mib(found["step"]["engine"]),
        " / ".join(_mib(found[one]["process"]) for one in CANDIDATES),
    ]


def _mib(size: int) -> str:
    return f"{size / 2**20:.1f}"


def _in_child(model: str, candidate: str) -> dict[str, int]:
    command = [sys.executable, "-m", "benchmarks.memory", model, candidate]
    environment = {**os.environ, **_GIVEN_BACK}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)
    if done.returncode:
        raise RuntimeError(f"{model}, {candidate}: {done.stderr.strip()[-2000:]}")
    figures: dict[str, int] = json.loads(done.stdout.strip().splitlines()[-1])
    return figures


def run(model: str, candidate: str) -> dict[str, int]:
    """The figures of one candidate in this process, in bytes."""
    torch.manual_seed(0)
    network, args = NETWORKS[model](TRAINING_BATCH[model])
    network.train()
    optimizer = sgd(network)
    call = training(candidate, network, args, optimizer)
    imported = _status("VmRSS")
    for _ in range(_WARM_UP):
        call()
    if candidate == "step":
        settle(call)
    process = _status("VmHWM") - imported
    live = _live(network, optimizer, args)
    risen = statistics.median(_rise_of(call) for _ in range(_STEPS))
    with torchstone.profile() as seen:
        call()
    engine = max((one.memory.get("intermediate", 0) for one in seen.programs), default=0)
    # Memory that the engine keeps for intermediate values from step to step does not show as a rise.
    return {"step": live + max(int(risen), engine), "between": live, "process": process, "engine": engine}


def _rise_of(call: Callable[[], object]) -> int:
    """Return by how much resident memory rises while ``call`` runs."""
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # resets the high-water mark
    before = _status("VmRSS")
    call()
    return _status("VmHWM") - before


def _status(name: str) -> int:
    line = next(one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith(name))
    return int(line.split()[1]) * 1024


def _live(network: torch.nn.Module, optimizer: torch.optim.Optimizer, args: Sequence[Any]) -> int:
    """Return the bytes of all tensors that live between steps. Shared memory counts once."""
    tensors = [*network.parameters(), *network.buffers(), *args]
    tensors += [p.grad for p in network.parameters()]
    tensors += [one for state in optimizer.state.values() for one in state.values()]
    storages = [one.untyped_storage() for one in tensors if isinstance(one, torch.Tensor)]
    return sum({one.data_ptr(): one.nbytes() for one in storages}.values())


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1], sys.argv[2])))
