"""Builds the chip as docs/bring-up-a-backend.md says, and checks that it reaches the promised stages."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

BLOCK = re.compile(r"(?:^<!-- ([^\n]*) -->\n)?^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINES = 150
"""The most lines that the chip may have."""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Environment variables with a PATH that has this environment's ``optest`` and ``python``."""
    tools = tmp_path / "bin"
    tools.mkdir()
    python = shlex.quote(sys.executable)
    for name, arguments in (("python", ""), ("optest", "-c 'from optest.cli import main; main()'")):
        (tools / name).write_text(f'#!/bin/sh\nexec {python} {arguments} "$@"\n')
        (tools / name).chmod(0o755)
    path = f"{tools}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "OPTEST_HOME": str(tmp_path / "home"), "COLUMNS": "200"}


def walk(
    page: str, folder: Path, environment: dict[str, str], *, most: int, everything: bool
) -> tuple[int, int]:
    """Build the chip and run the page's commands. Return how many ran and how many lines they were to print.

    Only the first ``most`` commands run. Unless ``everything`` is true, the commands marked
    ``conformance`` and their output are left out.
    """
    parts: list[str] = []
    output, left_out, commands, promises = "", False, 0, 0
    for note, language, text in BLOCK.findall(page):
        if language == "py":
            parts.append(text)
            (folder / "numpy_chip.py").write_text("\n".join(parts))
        elif note == "environment":
            environment |= dict(one.split("=") for one in text.removeprefix("export ").split())
        elif language == "sh":
            left_out = commands == most or ("conformance" in note and not everything)
            if not left_out:
                done = subprocess.run(
                    ["bash", "-e", "-c", text], cwd=folder, env=environment, capture_output=True, text=True
                )
                output = done.stdout
                assert done.returncode == 0, f"{text}{output}{done.stderr}"
                commands += 1
        elif language == "text" and not left_out:
            for line in text.splitlines():
                assert line in output, f"{line!r} is not in:\n{output}"
                promises += 1
    return commands, promises


@pytest.mark.kept("the first command")
@pytest.mark.parametrize(
    ("most", "everything", "found"),
    [(1, False, (1, 1)), (99, False, (3, 5)), (99, True, (6, 8))],
    ids=["the first command", "stage 1", "all stages"],
)
def test_the_page_is_as_it_says(
    repo: Path,
    tmp_path: Path,
    environment: dict[str, str],
    most: int,
    everything: bool,
    found: tuple[int, int],
) -> None:
    page = (repo / "docs" / "bring-up-a-backend.md").read_text("utf-8")
    folder = tmp_path / "work"
    folder.mkdir()
    assert walk(page, folder, environment, most=most, everything=everything) == found
    chip = (repo / "examples" / "bring_up" / "numpy_chip.py").read_text("utf-8")
    assert (folder / "numpy_chip.py").read_text() == chip
    assert len(chip.splitlines()) <= LINES
