"""How long capture, normalization and the walk take for the models of the zoo, and loops of any length."""

from __future__ import annotations

import importlib.util
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch.export import ExportedProgram

from torchstone import hlo
from torchstone.compiler import normalize
from torchstone.compiler.capture import capture
from torchstone.compiler.program import lower_program
from torchstone.config import override
from torchstone.parity import zoo
from torchstone.runtime import get_engine

from .measure import Row, once

MODELS_WITH_BOUND = ("resnet18", "bert")


def rows() -> Iterator[Row]:
    for name in MODELS_WITH_BOUND:
        model, args = zoo.MODELS[name]()
        exported = capture(model, args)
        normalized = normalize(exported)
        _walk(normalized)  # fills caches
        normalizing = _median(partial(normalize, exported))
        walk = _median(partial(_walk, normalized))
        yield Row(
            f"{name}: compile stages",
            {
                "torch.export": _median(partial(capture, model, args), 1),
                "normalize": normalizing,
                "walk (lower, verify, serialise)": walk,
                **_torch_mlir(exported),
            },
            "torch.export",
            "normalize < 3 s, walk < 0.5 s",
            normalizing < 3 and walk < 0.5,
        )
    yield from _long_graphs()
    yield from _recurrent()
    yield from _import_time()


def _long_graphs() -> Iterator[Row]:
    """Lowering of 1,000 and of 10,000 calls."""

    def chain(pairs: int, x: torch.Tensor) -> torch.Tensor:
        for place in range(pairs):
            x = torch.relu(x + place)
        return x

    normalized = [normalize(capture(partial(chain, pairs), (torch.randn(16),))) for pairs in (500, 5_000)]
    few, many = (_median(partial(_walk, one)) for one in normalized)
    yield Row(
        "walk of a long graph",
        {"1,000 nodes": few, "10,000 nodes": many},
        "1,000 nodes",
        "10,000 nodes < 3 s",
        many < 3,
    )


def _recurrent() -> Iterator[Row]:
    """First forward and backward of a compiled LSTM, without the compilation cache."""
    with override(cache=False):
        _first_step(5)  # imports, and what PyTorch builds once
        samples = [(_first_step(10), _first_step(1_000)) for _ in range(3)]
    few, many = (statistics.median(column) for column in zip(*samples, strict=True))
    yield Row(
        "LSTM: first forward and backward",
        {"10 steps": few, "1,000 steps": many},
        "10 steps",
        "1,000 steps ≤ 1.5 × 10 steps",
        many <= 1.5 * few,
    )


def _first_step(steps: int) -> float:
    torch._dynamo.reset()
    get_engine("pjrt", "cpu").clear_memory_cache()
    network, x = torch.nn.LSTM(16, 32), torch.randn(steps, 4, 16)
    compiled = torch.compile(network, backend="torchstone", fullgraph=True)
    return once(lambda: compiled(x)[0].sum().backward())


def _walk(program: ExportedProgram) -> bytes:
    """Lower, verify and serialise a normalized program."""
    return lower_program(program).module.serialize(hlo.resolve_version("current"))


def _torch_mlir(exported: ExportedProgram) -> dict[str, float]:
    """Time the same program through torch-mlir. Return nothing if that is not installed or fails."""
    if importlib.util.find_spec("torch_mlir") is None:
        return {}
    from torch_mlir import fx

    try:
        return {"torch-mlir": once(partial(fx.export_and_import, exported, output_type="stablehlo"))}
    except Exception as error:  # noqa: BLE001 - a peer's failure is a result, whatever it raises
        print(f"torch-mlir: {type(error).__name__}: {error}", file=sys.stderr)
        return {}


def _median(function: Callable[[], Any], times: int = 3) -> float:
    samples = []
    for _ in range(times):
        started = time.perf_counter()
        function()
        samples.append(time.perf_counter() - started)
    return statistics.median(samples)


def _import_time() -> Iterator[Row]:
    def seconds(statement: str) -> float:
        code = f"import time; t=time.perf_counter(); {statement}; print(time.perf_counter()-t)"
        return float(
            subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        )

    samples = [(seconds("import torch"), seconds("import torch, torchstone")) for _ in range(5)]
    alone, both = (statistics.median(column) for column in zip(*samples, strict=True))
    yield Row(
        "import",
        {"import torch": alone, "import torch, torchstone": both},
        "import torch",
        "torchstone adds < 0.3 s",
        both - alone < 0.3,
        {"torch": torch.__version__},
    )
