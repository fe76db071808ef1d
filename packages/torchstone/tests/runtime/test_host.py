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


def printed(code: str, keep: str) -> list[int]:
    """Run ``code`` with the setting ``keep_memory``, and return the numbers that it prints."""
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "TORCHSTONE_KEEP_MEMORY": keep, "TORCHSTONE_CACHE": "0"},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return [int(line) for line in ran.stdout.split()]


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

    (kept,), (given_back,) = printed(code, "1"), printed(code, "0")
    assert 2 * kept < given_back


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux and glibc")
def test_all_freed_memory_stays_while_a_large_program_exists() -> None:
    """The intermediate value of 64 MiB is more than the limit of 16 MiB, which the test sets."""
    code = """
import gc, resource, numpy
from torchstone.runtime import get_engine, host
host._KEPT_BYTES = host._LARGEST_THRESHOLD_OF_OLD = 16 << 20
text = '''func.func @main(%x: tensor<4096x8xf32>) -> tensor<4096x8xf32> {
  %0 = stablehlo.dot_general %x, %x, contracting_dims = [1] x [1]
    : (tensor<4096x8xf32>, tensor<4096x8xf32>) -> tensor<4096x4096xf32>
  %1 = stablehlo.dot_general %0, %x, contracting_dims = [1] x [0]
    : (tensor<4096x4096xf32>, tensor<4096x8xf32>) -> tensor<4096x8xf32>
  return %1 : tensor<4096x8xf32>
}'''
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize() >> 20
engine, x = get_engine("pjrt", "cpu"), numpy.ones((4096, 8), numpy.float32)
programs = [engine.compile(text) for _ in range(2)]
for _ in range(5):
    programs[0](x)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(8):
    programs[0](x)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
held = resident()
programs.pop()
gc.collect()
print(held - resident())
programs.clear()
gc.collect()
print(held - resident())
"""

    faults, first, last = printed(code, "1")
    assert 2 * faults < printed(code, "0")[0]
    assert first < 32
    assert last > 48
