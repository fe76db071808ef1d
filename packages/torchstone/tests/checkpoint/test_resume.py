"""Ten steps are five steps, a save, a load in a new process and five more, bit for bit."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from checkpoint_cases import training
from checkpoint_cases.training import Run


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Use one thread, as the new process does: the order of summation depends on the number of threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("stop", "options"),
    [(5, (0, False)), (6, (0, False)), (8, (0, True)), (5, (2, False)), (8, (2, True))],
    ids=["in an epoch", "at its end", "own generator", "workers", "workers and own generator"],
)
def test_ten_steps_are_five_and_five(tmp_path: Path, stop: int, options: tuple[int, bool]) -> None:
    whole = Run(*options)
    whole.train(10)
    expected = whole.digest()
    first = Run(*options)
    first.train(stop)
    first.save(tmp_path / "x")
    words = [
        sys.executable,
        training.__file__,
        str(tmp_path / "x"),
        str(stop),
        "10",
        str(options[0]),
        "own" * options[1],
    ]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    _, *batches, digest = done.stdout.split()
    assert [*first.batches, *batches] == whole.batches
    assert digest == expected  # the digest covers every bit of the state, and the next random numbers
    assert first.digest() != expected
