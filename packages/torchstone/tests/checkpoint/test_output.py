"""Files of checkpoints that are written past the page cache: their content, and failures."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch

from checkpoint_cases.boundaries import killed_at
from torchstone import checkpoint
from torchstone.checkpoint import output
from torchstone.checkpoint.output import Output
from torchstone.errors import CheckpointError

real_open, real_pwrite = os.open, os.pwrite


def is_direct(descriptor: int) -> bool:
    flags = Path(f"/proc/self/fdinfo/{descriptor}").read_text().split("flags:")[1].split()[0]
    return bool(int(flags, 8) & os.O_DIRECT)


@pytest.fixture
def direct_writes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[int]:
    """Write all pieces of a block or more directly; return a list of the sizes of these writes."""
    try:
        os.close(os.open(tmp_path / "probe", os.O_WRONLY | os.O_CREAT | os.O_DIRECT))
    except OSError:
        pytest.skip("this file system has no direct writes")
    monkeypatch.setattr(output, "_LEAST", 1)
    sizes: list[int] = []

    def pwrite(descriptor: int, data: Any, at: int) -> int:
        if is_direct(descriptor):
            sizes.append(len(data))
        return real_pwrite(descriptor, data, at)

    monkeypatch.setattr(os, "pwrite", pwrite)
    return sizes


def written(path: Path, pieces: list[tuple[int, int]], content: bytes) -> bytes:
    """Write parts ``(begin, end)`` of ``content`` in threads, and return the file."""
    made = Output(path)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda part: made.write(memoryview(content)[slice(*part)], part[0]), pieces))
    made.sync()
    made.close()
    return path.read_bytes()


def pieces_of(size: int, each: int) -> list[tuple[int, int]]:
    return [(begin, min(begin + each, size)) for begin in range(0, size, each)]


@pytest.mark.parametrize("each", [100, 4096, 5000, 8191, 12288, 70_000, 100_003])
def test_pieces_of_any_size_are_written_where_they_belong(
    each: int, tmp_path: Path, direct_writes: list[int]
) -> None:
    content = os.urandom(100_003)
    assert written(tmp_path / "x", pieces_of(len(content), each), content) == content
    assert bool(direct_writes) == (each >= 4096)
    assert all(size % 4096 == 0 for size in direct_writes)


def test_small_pieces_go_through_the_page_cache(
    tmp_path: Path, direct_writes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "_LEAST", 50_000)
    content = os.urandom(100_000)
    assert written(tmp_path / "x", pieces_of(len(content), 40_000), content) == content
    assert not direct_writes


def refusing(number: int) -> Callable[[int, Any, int], int]:
    def pwrite(descriptor: int, data: Any, at: int) -> int:
        if is_direct(descriptor):
            raise OSError(number, os.strerror(number))
        return real_pwrite(descriptor, data, at)

    return pwrite


def writing_half(descriptor: int, data: Any, at: int) -> int:
    return real_pwrite(descriptor, data[: len(data) // 2] if len(data) > 1 else data, at)


@pytest.mark.parametrize("instead", [refusing(errno.EINVAL), refusing(errno.ENOTSUP), writing_half])
def test_what_is_not_written_directly_is_written_through_the_cache(
    instead: Any, tmp_path: Path, direct_writes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "pwrite", instead)
    content = os.urandom(100_000)
    assert written(tmp_path / "x", pieces_of(len(content), 30_000), content) == content


def test_a_system_without_direct_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "_LEAST", 1)
    monkeypatch.delattr(os, "O_DIRECT")
    content = os.urandom(100_000)
    assert written(tmp_path / "x", pieces_of(len(content), 30_000), content) == content


def test_a_file_system_that_cannot_open_files_for_direct_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Any, flags: int, mode: int = 0o777, **options: Any) -> int:
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return real_open(path, flags, mode, **options)

    monkeypatch.setattr(output, "_LEAST", 1)
    monkeypatch.setattr(os, "open", refuse)
    content = os.urandom(100_000)
    assert written(tmp_path / "x", pieces_of(len(content), 30_000), content) == content


def changed(path: Path) -> tuple[torch.nn.Module, dict[int, torch.Tensor]]:
    """Save step 1 of a model and change it; return it, and its weights at steps 1 and 2."""
    model = torch.nn.Linear(100, 100)
    checkpoint.save(path, model=model, step=1)
    weights = {1: model.weight.detach().clone()}
    with torch.no_grad():
        model.weight += 1
    return model, {**weights, 2: model.weight.detach().clone()}


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_errors_of_direct_writes_are_raised(
    number: int, tmp_path: Path, direct_writes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, weights = changed(tmp_path / "x")
    monkeypatch.setattr(os, "pwrite", refusing(number))
    with pytest.raises(CheckpointError, match=os.strerror(number)):
        checkpoint.save(tmp_path / "x", model=model, step=2)
    monkeypatch.undo()
    assert checkpoint.load(tmp_path / "x", model=model).step == 1
    assert torch.equal(model.weight, weights[1])
    assert len(list((tmp_path / "x").iterdir())) == 2


def test_a_kill_at_any_step_of_a_save_costs_nothing(tmp_path: Path, direct_writes: list[int]) -> None:
    model, weights = changed(tmp_path / "x")
    found = set()
    for number in count():
        path = shutil.copytree(tmp_path / "x", tmp_path / str(number))
        killed = killed_at(number, lambda path=path: checkpoint.save(path, model=model, step=2))
        loaded = torch.nn.Linear(100, 100)
        step = checkpoint.load(path, model=loaded).step
        assert step is not None
        assert torch.equal(loaded.weight, weights[step])
        found.add(step)
        if not killed:
            break
    assert found == {1, 2}
    assert direct_writes
