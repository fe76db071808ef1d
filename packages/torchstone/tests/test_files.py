"""Files appear whole or not at all; devices and pipes keep their place. Full disks: ``test_bad_input``."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import torchstone
from torchstone.artifact import load_artifact, save_artifact
from torchstone.files import read_whole, replacing


def write(path: Path, content: bytes) -> None:
    with replacing(path) as file:
        file.write(content)


def test_mode_and_links_stay(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("before")
    (tmp_path / "file").chmod(0o604)
    (tmp_path / "link").symlink_to("file")
    write(tmp_path / "link", b"after")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "after"
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o604


def test_stdout_by_its_name_is_written_to_as_it_was_opened(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("before ")
    code = (
        "from pathlib import Path; from torchstone.files import replacing\n"
        "with replacing(Path('/dev/stdout')) as file: file.write(b'after')"
    )
    with open(tmp_path / "log", "ab") as log:
        subprocess.run([sys.executable, "-c", code], stdout=log, check=True)
    assert (tmp_path / "log").read_text() == "before after"


def test_a_folder_is_no_place_for_a_file(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        write(tmp_path, b"x")
    assert list(tmp_path.iterdir()) == []


def test_an_artifact_goes_into_a_device_or_pipe(tmp_path: Path) -> None:
    import torch

    program = torchstone.export(torch.nn.Linear(3, 2), (torch.ones(4, 3),))
    file, pipe, copy = tmp_path / "file", tmp_path / "pipe", tmp_path / "copy"
    artifact = load_artifact(program.save(file))
    save_artifact(Path("/dev/null"), artifact)
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: copy.write_bytes(pipe.read_bytes()))
    reader.start()
    save_artifact(pipe, artifact)
    reader.join(30)
    assert load_artifact(copy).module == artifact.module
    assert torchstone.load(copy).signature == torchstone.load(file).signature


def test_a_file_without_an_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchstone.files.MOST_BYTES", 1000)
    for place in ("/dev/zero", "/dev/full"):
        with pytest.raises(OSError, match="File too large"):
            read_whole(Path(place))
    (tmp_path / "file").write_bytes(bytes(1000))
    assert read_whole(tmp_path / "file") == bytes(1000)
