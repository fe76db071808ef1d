"""A folder of checkpoints: what is kept, what is the latest, and what happens around damage and crashes."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from torchstone import checkpoint
from torchstone.checkpoint import manager as module
from torchstone.errors import CheckpointBusy, CheckpointDamaged, CheckpointError, CheckpointWarning


def steps(manager: checkpoint.Manager) -> list[int]:
    return [one.step for one in manager.saved()]


def test_the_last_and_the_best_are_kept(tmp_path: Path) -> None:
    manager = checkpoint.Manager(tmp_path, keep_last=2, keep_best=2)
    for step, loss in enumerate((5.0, 1.0, float("nan"), 0.5, 7.0, float("-inf"), 8.0)):
        manager.save(step, w=torch.ones(2), loss=loss)
    assert steps(manager) == [1, 3, 5, 6]  # a checkpoint with a loss that is not finite is never the best
    assert manager.best() == tmp_path / "step-00000003"
    assert manager.latest() == tmp_path / "step-00000006"
    assert (tmp_path / "latest").read_text() == "step-00000006\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "latest",
        *(f"step-0000000{step}" for step in (1, 3, 5, 6)),
    ]


def test_the_largest_may_be_the_best_and_equal_ones_are_the_newest(tmp_path: Path) -> None:
    manager = checkpoint.Manager(tmp_path, keep_last=1, keep_best=1, metric="accuracy", mode="max")
    for step, accuracy in enumerate((0.5, 0.9, 0.9, 0.1)):
        manager.save(step, accuracy=accuracy)
    assert steps(manager) == [2, 3]


def test_all_may_be_kept(tmp_path: Path) -> None:
    manager = checkpoint.Manager(tmp_path, keep_last=None)
    for step in range(5):
        manager.save(step)
    assert steps(manager) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keep_last": 0}, "keep_last is 0"),
        ({"keep_best": -1}, "keep_best is -1"),
        ({"mode": "x"}, "mode 'x'"),
    ],
)
def test_options_are_checked(tmp_path: Path, options: Any, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        checkpoint.Manager(tmp_path, **options)


def test_the_metric_must_be_given_where_the_best_are_kept(tmp_path: Path) -> None:
    manager = checkpoint.Manager(tmp_path, keep_best=1)
    with pytest.raises(CheckpointError, match="loss is None, and the best checkpoints are kept by it"):
        manager.save(1)
    with pytest.raises(CheckpointError, match="step is -1"):
        checkpoint.Manager(tmp_path).save(-1)
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_starts_again_from_an_earlier_step(tmp_path: Path) -> None:
    """Checkpoints are ordered by when they were saved, whatever their steps or a clock say."""
    manager = checkpoint.Manager(tmp_path, keep_last=2)
    for step in (10, 20, 30, 12):
        path = manager.save(step)
        os.utime(path, (step, step))
        os.utime(path / "checkpoint.jsonl", (10**9 - step, 0))
    assert steps(manager) == [30, 12]
    assert manager.latest() == tmp_path / "step-00000012"


def test_a_clock_that_is_set_back_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from datetime import UTC, datetime

    class Clock(datetime):
        year_now = 2030

        @classmethod
        def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]
            cls.year_now -= 20
            return datetime(cls.year_now, 1, 1, tzinfo=UTC)

    monkeypatch.setattr("torchstone.checkpoint.saving.datetime", Clock)
    manager = checkpoint.Manager(tmp_path, keep_last=1)
    manager.save(1)
    manager.save(2)
    assert (steps(manager), checkpoint.load(tmp_path).step) == ([2], 2)


def test_an_empty_folder_has_nothing_to_load(tmp_path: Path) -> None:
    manager = checkpoint.Manager(tmp_path / "new")
    assert manager.latest() is manager.best() is manager.load() is None


def test_a_damaged_checkpoint_is_passed_over(tmp_path: Path) -> None:
    manager = checkpoint.Manager(tmp_path)
    for step in (1, 2, 3):
        manager.save(step, w=torch.full((4,), float(step)))
    for path in (tmp_path / "step-00000003").rglob("metadata-*"):
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.warns(
        CheckpointWarning, match="is damaged: metadata.* bytes instead of .*; taking an older one"
    ):
        loaded = manager.load()
    assert loaded is not None
    assert loaded.metadata["w"].tolist() == [2.0] * 4
    for path in tmp_path.rglob("metadata-*"):
        path.unlink()
    with pytest.warns(CheckpointWarning), pytest.raises(CheckpointDamaged, match="step-00000001 is damaged"):
        manager.load()


@pytest.mark.parametrize("pointer", [None, b"", b"gone\n", b"../../etc\n", b"\xff\xfe", b"\x00"])
def test_a_pointer_that_is_lost_or_wrong(tmp_path: Path, pointer: bytes | None) -> None:
    manager = checkpoint.Manager(tmp_path)
    for step in (1, 2):
        manager.save(step)
    if pointer is None:
        (tmp_path / "latest").unlink()
    else:
        (tmp_path / "latest").write_bytes(pointer)
    assert manager.latest() == tmp_path / "step-00000002"
    loaded = manager.load()
    assert loaded is not None
    assert loaded.step == 2


def test_latest_moves_after_the_checkpoint_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = checkpoint.Manager(tmp_path)
    manager.save(1)

    def fails(*_: Any) -> None:
        raise OSError("no")

    monkeypatch.setattr("torchstone.checkpoint.saving._write_data", fails)
    with pytest.raises(CheckpointError):
        manager.save(2)
    assert manager.latest() == tmp_path / "step-00000001"
    monkeypatch.undo()
    monkeypatch.setattr(module, "write_whole", fails)
    with pytest.raises(CheckpointError):
        manager.save(3)
    assert manager.latest() == tmp_path / "step-00000001"
    monkeypatch.undo()
    manager.save(4)
    assert steps(manager) == [1, 3, 4]
    assert manager.latest() == tmp_path / "step-00000004"


def test_what_saves_have_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    manager = checkpoint.Manager(tmp_path, keep_last=1)
    manager.save(1)
    (tmp_path / "step-00000009" / "data-0123456789abcdef").mkdir(parents=True)
    (tmp_path / ".0123456789abcdef.tmp").write_text("")
    (tmp_path / "notes").mkdir()
    shutil.copytree(tmp_path / "step-00000001", tmp_path / "step-00000007")
    (tmp_path / "step-00000007" / "checkpoint.jsonl").write_text("damaged")
    manager.save(2)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["latest", "notes", "step-00000002", "step-00000007"]  # the damaged one is kept


def test_a_save_in_the_background_raises_later(tmp_path: Path) -> None:
    manager = checkpoint.Manager(tmp_path)
    weight = torch.ones(1000)
    manager.save(1, background=True, w=weight)
    weight.zero_()
    manager.wait()
    loaded = manager.load()
    assert loaded is not None
    assert loaded.metadata["w"].sum() == 1000
    (tmp_path / "step-00000002").write_text("in the way")
    manager.save(2, background=True)
    with pytest.raises(CheckpointError, match="something else is there"):
        manager.save(3)
    manager.save(3)
    assert steps(manager) == [1, 3]


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    manager = checkpoint.Manager(tmp_path)
    manager.save(1)
    with module.disk.locked(tmp_path), pytest.raises(CheckpointBusy):
        manager.save(2)
    assert steps(manager) == [1]


def test_what_another_process_writes_to_is_not_removed(tmp_path: Path) -> None:
    manager = checkpoint.Manager(tmp_path, keep_last=1)
    first = manager.save(1)
    with module.disk.locked(first):
        manager.save(2)
    assert steps(manager) == [1, 2]
    manager.save(3)
    assert steps(manager) == [3]


def test_a_manager_shards_too(tmp_path: Path) -> None:
    path = checkpoint.Manager(tmp_path).save(1, rng=False, shard_size=10, a=torch.ones(3), b=torch.ones(3))
    assert len(list(path.rglob("metadata-*-of-00002.safetensors"))) == 2
    loaded = checkpoint.load(path)
    assert (list(loaded.metadata), loaded.step) == (["a", "b"], 1)
