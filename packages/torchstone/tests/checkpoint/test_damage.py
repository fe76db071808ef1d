"""Damaged, foreign and newer checkpoints, places that cannot be written: one clear error, nothing lost."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import random
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from torchstone import checkpoint
from torchstone.checkpoint import disk, manifest
from torchstone.errors import (
    CheckpointBusy,
    CheckpointDamaged,
    CheckpointError,
    CheckpointMismatch,
    CheckpointVersionError,
    TorchstoneError,
)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    model = torch.nn.Linear(30, 30)
    return checkpoint.save(tmp_path / "saved", model=model, step=3, note="n", shard_size=3000)


def refusal(path: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        checkpoint.load(path)
    assert caught.value.hint
    return str(caught.value)


def test_nothing_is_there(tmp_path: Path) -> None:
    assert refusal(tmp_path / "x") == f"there is no checkpoint at {tmp_path}/x\n  next: check the path"
    assert f"there is no checkpoint at {tmp_path}: the folder has no checkpoint.jsonl" in refusal(tmp_path)
    (tmp_path / "data-0123456789abcdef").mkdir()
    assert f"there is no checkpoint at {tmp_path}: a first save was interrupted" in refusal(tmp_path)


@pytest.mark.parametrize("content", [b"", b"text", b"\x80\x02}q\x00.", b"\xff" * 100])
def test_a_file_of_another_kind(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    assert refusal(path).startswith(f"{path} is not a checkpoint\n  next: pass a folder that ")


def head_of(path: Path) -> tuple[dict[str, Any], bytes]:
    first, _, second = (path / manifest.MANIFEST).read_bytes().partition(b"\n")
    return json.loads(first), second


def test_a_newer_format(saved: Path) -> None:
    head, body = head_of(saved)
    head["version"] = [2, 0]
    (saved / manifest.MANIFEST).write_bytes(json.dumps(head).encode() + b"\nof a form to come\n" + body)
    with pytest.raises(CheckpointVersionError) as caught:
        checkpoint.load(saved)
    assert str(caught.value) == (
        f"the checkpoint {saved} has format 2.0; this Torchstone reads up to 1.x\n"
        "  next: update Torchstone, or save the checkpoint again with the older one"
    )


def rewrite(path: Path, change: Any) -> None:
    """Change the manifest and its checksum."""
    import hashlib

    head, body = head_of(path)
    said = json.loads(body)
    change(head, said)
    body = json.dumps(said).encode()
    head["sha256"] = hashlib.sha256(body).hexdigest()
    (path / manifest.MANIFEST).write_bytes(json.dumps(head).encode() + b"\n" + body + b"\n")


def test_fields_of_a_later_minor_version_are_ignored(saved: Path) -> None:
    def later(head: Any, said: Any) -> None:
        head["version"], head["new"], said["new"] = [1, 9], 1, {"a": []}
        said["files"][0]["new"] = said["tensors"][0]["new"] = 1
        said["sections"]["new"] = {"dict": {"x": 1}}

    rewrite(saved, later)
    found = checkpoint.load(saved)
    assert (found.step, found.metadata, found["new"]) == (3, {"note": "n"}, {"x": 1})


def test_an_unknown_kind_of_value_is_not_guessed(saved: Path) -> None:
    rewrite(saved, lambda head, said: said["sections"].update(metadata={"dict": {"x": {"quaternion": [1]}}}))
    with pytest.raises(CheckpointDamaged):
        checkpoint.load(saved)["metadata"]


@pytest.mark.parametrize(
    "change",
    [
        lambda head, said: said.update(data="../../etc"),
        lambda head, said: said["files"][0].update(name="../x"),
        lambda head, said: said["tensors"][0].update(file=99),
        lambda head, said: said["tensors"][0].update(dtype="Tensor"),
        lambda head, said: said["tensors"][0].update(shape=[7]),
        lambda head, said: said["tensors"][0].update(crc32=[]),
        lambda head, said: said["tensors"][0].update(key="gone"),
        lambda head, said: said["tensors"][1].update(strides=[10**15, 1]),
        lambda head, said: said["sections"].update(model={"tensor": 99}),
        lambda head, said: said["sections"].update(model={"tensor": -1}),
        lambda head, said: said["sections"].update(model={"dtype": "load"}),
        lambda head, said: said.update(tensors=5),
        lambda head, said: said.pop("sections"),
        lambda head, said: head.update(version="1"),
        lambda head, said: head.update(format="zip"),
    ],
)
def test_a_manifest_that_lies_is_damage(saved: Path, change: Any) -> None:
    rewrite(saved, change)
    with pytest.raises(CheckpointDamaged) as caught:
        checkpoint.load(saved)["model"]
    assert str(saved) in str(caught.value)


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1 << (at % 8)
    path.write_bytes(content)


def test_no_byte_can_change_unnoticed(saved: Path) -> None:
    """Flip one bit at a time: at every place of the small files, and at many places of the large ones."""
    state = {name: one.clone() for name, one in checkpoint.load(saved)["model"].items()}
    for file in sorted(path for path in saved.rglob("*") if path.is_file()):
        size = file.stat().st_size
        places = range(size) if size < 600 else random.Random(0).sample(range(size), 40)
        for at in places:
            flip(file, at)
            model = torch.nn.Linear(30, 30)
            before = model.weight.detach().clone()
            try:
                with pytest.raises(CheckpointError):
                    checkpoint.load(saved)
                if "model-" in file.name or file.name == manifest.MANIFEST:
                    with pytest.raises(CheckpointError):
                        checkpoint.load(saved, model=model)
                    assert torch.equal(model.weight, before)
            finally:
                flip(file, at)
    assert all(torch.equal(one, state[name]) for name, one in checkpoint.load(saved)["model"].items())


def test_no_file_can_be_cut_off_unnoticed(saved: Path) -> None:
    for file in sorted(path for path in saved.rglob("*") if path.is_file()):
        content = file.read_bytes()
        for size in (0, 1, 7, len(content) // 2, len(content) - 1):
            file.write_bytes(content[:size])
            assert "damaged" in refusal(saved)
        file.unlink()
        missing = (
            "a first save was interrupted" if file.name == manifest.MANIFEST else f"{file.name} is missing"
        )
        assert missing in refusal(saved)
        file.write_bytes(content)
    assert checkpoint.load(saved).step == 3


def test_damage_is_named_and_other_parts_still_load(saved: Path) -> None:
    rng = next(saved.rglob("rng-*"))
    flip(rng, rng.stat().st_size - 1)
    with pytest.raises(
        CheckpointDamaged, match=r"the data of '.*' in rng-0000\d-of-0000\d.safetensors is damaged"
    ):
        checkpoint.load(saved, rng=True)
    assert checkpoint.load(saved, model=torch.nn.Linear(30, 30)).step == 3
    assert checkpoint.load(saved, verify=False)["rng"]


def test_a_deep_manifest_is_damage(saved: Path) -> None:
    head, _ = head_of(saved)
    (saved / manifest.MANIFEST).write_bytes(json.dumps(head).encode() + b"\n" + b"[" * 10**6)
    assert "checkpoint.jsonl is damaged" in refusal(saved)


def test_a_checkpoint_is_not_put_among_other_things(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(CheckpointError, match="something else is there"):
        checkpoint.save(tmp_path, step=1)
    with pytest.raises(CheckpointError, match="something else is there"):
        checkpoint.save(tmp_path / "notes.txt", step=1)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_full_disk_leaves_what_was_there(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("torchstone.checkpoint.shards.os.pwrite", full)
    with pytest.raises(CheckpointError) as caught:
        checkpoint.save(saved, model=torch.nn.Linear(3, 3), step=4)
    assert str(caught.value) == (
        f"cannot save the checkpoint {saved}: No space left on device\n"
        "  next: free some space or choose another disk; what was there before is untouched"
    )
    monkeypatch.undo()
    assert checkpoint.load(saved).step == 3
    assert len(list(saved.iterdir())) == 2


BOUNDED = """
import resource, signal, sys, torch
from torchstone import checkpoint
from torchstone.errors import CheckpointError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
sys.dont_write_bytecode = True
resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))
try:
    checkpoint.save(sys.argv[1], model=torch.nn.Linear(100, 100), step=4)
except CheckpointError as error:
    print(error.message)
"""


def test_a_file_that_may_not_grow(saved: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BOUNDED, saved], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout == f"cannot save the checkpoint {saved}: File too large\n"
    assert checkpoint.load(saved).step == 3
    assert len(list(saved.iterdir())) == 2


def test_a_folder_that_may_not_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(disk.os, "mkdir", refused)  # a real read-only folder would not stop root
    with pytest.raises(CheckpointError) as caught:
        checkpoint.save(tmp_path / "x", step=1)
    assert str(caught.value) == (
        f"cannot save the checkpoint {tmp_path}/x: Permission denied\n"
        "  next: check that the folder exists and that this process may use it"
    )


def hold(path: Path, held: Any, done: Any) -> None:
    with disk.locked(path):
        held.set()
        done.wait(60)


def test_two_processes_and_one_path(saved: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    held, done = spawn.Event(), spawn.Event()
    other = spawn.Process(target=hold, args=(saved, held, done))
    other.start()
    try:
        assert held.wait(60)
        with pytest.raises(CheckpointBusy) as caught:
            checkpoint.save(saved, step=4)
        assert str(caught.value) == (
            f"another process is saving to {saved}\n"
            "  next: give each process a path of its own, or let one of them save"
        )
        assert checkpoint.load(saved).step == 3
    finally:
        done.set()
        other.join(60)
    checkpoint.save(saved, step=4)
    assert checkpoint.load(saved).step == 4


def test_without_locks_a_save_still_counts(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: Any) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(disk.fcntl, "flock", none)
    checkpoint.save(saved, step=4)
    assert checkpoint.load(saved).step == 4
    assert len(list(saved.glob("data-*"))) == 2  # another process may still be writing one
    monkeypatch.undo()
    checkpoint.save(saved, step=5)
    assert len(list(saved.glob("data-*"))) == 1


def test_many_descriptors_are_not_left_open(saved: Path) -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        checkpoint.load(saved, model=torch.nn.Linear(30, 30))
        with pytest.raises(CheckpointMismatch):
            checkpoint.load(saved, model=torch.nn.Linear(2, 2))
    assert len(os.listdir("/proc/self/fd")) < before + 5 < most


def test_a_signal_handler_may_save_while_it_interrupts_a_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[Any] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:  # a handler runs between two instructions of the first save
        if not found:
            found.append(None)
            found.append(checkpoint.save(tmp_path / "inner", step=2))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    outer = checkpoint.save(tmp_path / "outer", step=1)
    assert (checkpoint.load(outer).step, checkpoint.load(found[1]).step) == (1, 2)


def test_every_error_of_a_checkpoint_is_one_class() -> None:
    for one in (CheckpointBusy, CheckpointDamaged, CheckpointMismatch, CheckpointVersionError):
        assert issubclass(one, CheckpointError)
    assert issubclass(CheckpointError, TorchstoneError)
