"""Changes that the runtime makes to the process for programs on the CPU, and how to turn them off."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
import torch

from torchstone.config import override
from torchstone.runtime import get_engine, host

PRODUCT = """func.func @main(%x: tensor<{n}x{n}xf32>) -> tensor<{n}x{n}xf32> {{
  %0 = stablehlo.dot_general %x, %x, contracting_dims = [1] x [0]
    : (tensor<{n}x{n}xf32>, tensor<{n}x{n}xf32>) -> tensor<{n}x{n}xf32>
  return %0 : tensor<{n}x{n}xf32>
}}"""

needs_gnu_openmp = pytest.mark.skipif(
    not list((Path(torch.__file__).parent / "lib").glob("libgomp*")), reason="PyTorch's OpenMP is not GNU's"
)


def threads() -> int:
    return len(os.listdir("/proc/self/task"))


@needs_gnu_openmp
def test_a_long_program_ends_waiting_openmp_threads() -> None:
    x = torch.randn(640, 640)
    program = get_engine("pjrt", "cpu").compile(PRODUCT.format(n=640))
    program.run_torch([x])  # starts the engine's own threads
    usual = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        (x + 1).exp()
        before = threads()
        with override(pause_openmp=False):
            program.run_torch([x])
        assert threads() == before
        program.run_torch([x])
        assert threads() == before - 2
        torch.testing.assert_close((x + 1).exp(), torch.exp(x + 1))  # PyTorch starts its threads again
        assert threads() == before
    finally:
        torch.set_num_threads(usual)


@needs_gnu_openmp
def test_a_short_program_leaves_openmp_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    monkeypatch.setattr(host, "openmp_pause", lambda: lambda: calls.append(1))
    x = numpy.ones((640, 640), numpy.float32)
    engine = get_engine("pjrt", "cpu")
    engine.compile(PRODUCT.format(n=8))(x[:8, :8].copy())
    assert not calls
    engine.compile(PRODUCT.format(n=640))(x)
    assert bool(calls) == (torch.get_num_threads() > 1)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux and glibc")
def test_freed_memory_stays() -> None:
    """Results of 64 MB come from fresh pages in every call, or mostly from an earlier call's.

    Only the ratio of page faults is certain: the system chooses the size of a page, and sometimes the engine
    allocates on a thread that has no memory of its own yet.
    """
    code = """
import resource, numpy
from torchstone.runtime import get_engine
text = '''func.func @main(%x: tensor<16777216xf32>) -> tensor<16777216xf32> {
  %0 = stablehlo.add %x, %x : tensor<16777216xf32>
  return %0 : tensor<16777216xf32>
}'''
program = get_engine("pjrt", "cpu").compile(text)
x = numpy.ones(16777216, numpy.float32)
for _ in range(20):  # until the heap has its size
    program(x)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(8):
    program(x)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""

    def faults(keep: str) -> int:
        environment = {**os.environ, "TORCHSTONE_KEEP_MEMORY": keep, "TORCHSTONE_CACHE": "0"}
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
        return int(done.stdout)

    kept, given_back = faults("1"), faults("0")
    assert 2 * kept < given_back
