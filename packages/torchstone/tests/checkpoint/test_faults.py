"""Every cell of the matrix of faults, and that the page says what they gave."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import checkpoint_faults
import pytest
import torch

from checkpoint_cases.faults import FAULTS, OLD, resumed, room, row
from checkpoint_cases.training import Run
from torchstone.errors import CheckpointDamaged

PAGE = (checkpoint_faults.ROOT / checkpoint_faults.PAGE).read_text("utf-8")


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_costs_nothing(name: str) -> None:
    with room() as folder:
        count = FAULTS[name].try_all(folder)
    assert count.tried > 1
    assert checkpoint_faults.line(row(FAULTS[name], count)) in PAGE, "run tools/checkpoint_faults.py"


def test_the_page_has_every_cell_and_no_other() -> None:
    lines = [line for line in PAGE.splitlines() if line.startswith("| ")]
    assert len(lines) == len(FAULTS) + 2


def test_the_matrix_notices_a_save_that_is_not_atomic(monkeypatch: pytest.MonkeyPatch) -> None:
    def in_place(path: Path, content: bytes) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.pwrite(descriptor, content, 0)
        os.fsync(descriptor)
        os.close(descriptor)

    monkeypatch.setattr("torchstone.checkpoint.saving.write_whole", in_place)
    with room() as folder, pytest.raises(CheckpointDamaged, match=r"checkpoint.jsonl is damaged"):
        FAULTS["power cut"].try_all(folder)


def test_the_matrix_notices_a_save_that_is_not_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchstone.checkpoint.disk.sync_folder", lambda path: None)
    with room() as folder, pytest.raises(AssertionError, match="was not durable when save returned"):
        FAULTS["power cut"].try_all(folder)


def test_the_matrix_notices_a_run_that_goes_on_differently(tmp_path: Path) -> None:
    run = Run()
    run.train(OLD)
    with torch.no_grad():
        run.model[1].running_mean += 1e-6
    run.save(tmp_path / "x")
    with pytest.raises(AssertionError, match="differs from one that was not interrupted"):
        resumed(tmp_path / "x")
