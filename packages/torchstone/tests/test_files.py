"""Artifacts go into devices and pipes, which keep their place. Full disks: ``test_bad_input``."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import torch

import torchstone
from torchstone.artifact import load_artifact, save_artifact


def test_an_artifact_goes_into_a_device_or_pipe(tmp_path: Path) -> None:
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
