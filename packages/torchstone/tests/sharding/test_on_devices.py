"""Sharded programs on several CPU devices. A process gets these when it starts, so each file runs in a child.

Run one by hand with TORCHSTONE_CPU_DEVICES=8 python -m pytest FILE.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).with_name("on_devices")


@pytest.mark.kept("collectives.py")
@pytest.mark.parametrize("name", sorted(file.name for file in FOLDER.glob("*.py")))
def test_on_devices(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(FOLDER / name)],
        env={**os.environ, "TORCHSTONE_CPU_DEVICES": "8"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
