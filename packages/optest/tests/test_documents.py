"""docs/optest: the tutorial is walked through with a real compiler, examples of other pages are valid."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from optest.plan.expectations import Expectations
from optest.plan.loader import load
from optest.plan.options import resolve
from optest.plan.schema import PLAN_SCHEMA

DOCS = Path(__file__).parents[3] / "docs" / "optest"
BLOCK = re.compile(r"(?:^<!-- ([^\n]*) -->\n)?^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
REPAIRED = "            y[j] = x[j] / (1.0f + expf(-x[j]));\n}\n"
"""What the tutorial's ``replace`` block stands in for."""


def blocks(page: str) -> Iterator[tuple[str, str, str]]:
    """Note, language and text of each block."""
    yield from BLOCK.findall((DOCS / page).read_text("utf-8"))


@pytest.fixture
def shell(tmp_path: Path, require_tool: Callable[[str], str]) -> Callable[[str, int], str]:
    """Runs a block of commands in an empty folder, where ``optest`` and ``python`` are this environment's."""
    require_tool("gcc")
    tools = tmp_path / "bin"
    tools.mkdir()
    python = shlex.quote(sys.executable)
    for name, arguments in (("python", ""), ("optest", "-c 'from optest.cli import main; main()'")):
        (tools / name).write_text(f'#!/bin/sh\nexec {python} {arguments} "$@"\n')
        (tools / name).chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(sys.path),
        "OPTEST_HOME": str(tmp_path / "home"),
        "COLUMNS": "200",
    }
    folder = tmp_path / "work"
    folder.mkdir()

    def run(commands: str, exit_code: int) -> str:
        done = subprocess.run(
            ["bash", "-e", "-c", commands],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == exit_code, f"{commands}{done.stdout}{done.stderr}"
        return done.stdout

    return run


def test_the_tutorial(shell: Callable[[str, int], str], tmp_path: Path) -> None:
    folder = tmp_path / "work"
    output = ""
    commands = promises = 0
    for note, language, text in blocks("tutorial.md"):
        if note.startswith("file: "):
            (folder / note.removeprefix("file: ")).write_text(text)
        elif note.startswith("replace in silu.c"):
            old = (folder / "silu.c").read_text()
            assert old.count(REPAIRED) == 1
            (folder / "silu.c").write_text(old.replace(REPAIRED, text))
        elif language == "sh":
            output = shell(text, int(note.removeprefix("exit ") or 0))
            commands += 1
        else:
            assert language == "text", f"a {language} block that nothing uses"
            for line in text.splitlines():
                assert line in output, f"{line!r} is not in:\n{output}"
                promises += 1
    assert commands >= 8
    assert promises >= 8
    assert "<html" in (folder / "report.html").read_text()


def test_the_plan_of_the_reference_is_valid(tmp_path: Path) -> None:
    [text] = [text for _, language, text in blocks("plans.md") if language == "yaml"]
    (tmp_path / "plan.yaml").write_text(text)
    cases = list(load(resolve(plan=tmp_path / "plan.yaml")))
    assert {case.op for case in cases} == {"relu", "softmax", "add", "mul"}
    assert {case.attributes["dim"] for case in cases if case.op == "softmax"} == {0, -1}


def test_the_gaps_of_the_reference_are_valid(tmp_path: Path) -> None:
    [text] = [text for _, language, text in blocks("plans.md") if language == "toml"]
    (tmp_path / "gaps.toml").write_text(text)
    [gap] = Expectations.load(tmp_path / "gaps.toml").gaps
    assert gap.shapes == {"input0": "0,*"}


def test_every_key_of_a_plan_is_described() -> None:
    def undescribed(fields: dict[str, dict[str, object]]) -> list[str]:
        return [name for name, schema in fields.items() if not schema.get("description")]

    properties = PLAN_SCHEMA["properties"]
    assert undescribed(properties) == []
    assert undescribed(properties["cases"]["items"]["properties"]) == []
    for driver in properties["backend_config"]["properties"].values():
        assert undescribed(driver["properties"]) == []


def test_the_entry_points_are_those_of_the_example() -> None:
    [text] = [text for _, language, text in blocks("drivers.md") if language == "toml"]
    example = DOCS.parents[1] / "examples" / "optest" / "company-optest-plugins" / "pyproject.toml"
    assert text in example.read_text()
