"""Pages of docs/optest: their commands print what the pages show, and their examples are valid."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from optest.core.result import Status
from optest.ledger import Ledger
from optest.plan.expectations import Expectations
from optest.plan.loader import load
from optest.plan.options import resolve
from optest.plan.schema import PLAN_SCHEMA

DOCS = Path(__file__).parents[3] / "docs" / "optest"
BLOCK = re.compile(r"(?:^<!-- ([^\n]*) -->\n)?^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
REPAIRED = "            y[j] = x[j] / (1.0f + expf(-x[j]));\n}\n"
"""The lines of ``silu.c`` that the tutorial's ``replace`` block replaces."""
Shell = Callable[..., str]


def blocks(page: str) -> Iterator[tuple[str, str, str]]:
    """Yield the note, language and text of each block."""
    yield from BLOCK.findall((DOCS / page).read_text("utf-8"))


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """Return a function that runs commands in an empty folder with this ``optest`` and ``python``."""
    tools = tmp_path / "bin"
    tools.mkdir()
    python = shlex.quote(sys.executable)
    for name, arguments in (("python", ""), ("optest", "-c 'from optest.cli import main; main()'")):
        (tools / name).write_text(f'#!/bin/sh\nexec {python} {arguments} "$@"\n')
        (tools / name).chmod(0o755)
    folder = tmp_path / "work"
    folder.mkdir()
    environment = {
        **os.environ,
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([*sys.path, str(folder)]),
        "OPTEST_HOME": str(tmp_path / "home"),
        "COLUMNS": "200",
    }

    def run(commands: str, exit_code: int = 0, **variables: str) -> str:
        done = subprocess.run(
            ["bash", "-e", "-c", commands],
            cwd=folder,
            env={**environment, **variables},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == exit_code, f"{commands}{done.stdout}{done.stderr}"
        return done.stdout

    return run


def walk(page: str, shell: Shell, folder: Path, *, everything: bool = True) -> tuple[int, int]:
    """Follow a page: write its files, run its commands and check that their output has the lines shown.

    Returns the number of commands and of lines. Unless ``everything``, commands marked ``conformance``
    and their output are left out.
    """
    output = ""
    commands = promises = 0
    left_out = False
    for note, language, text in blocks(page):
        if note.startswith("file: "):
            (folder / note.removeprefix("file: ")).write_text(text)
        elif note.startswith("replace in silu.c"):
            old = (folder / "silu.c").read_text()
            assert old.count(REPAIRED) == 1
            (folder / "silu.c").write_text(old.replace(REPAIRED, text))
        elif language == "sh":
            left_out = "conformance" in note and not everything
            if not left_out:
                code, *_ = note.removeprefix("exit ").split() or ["0"]
                output = shell(text, int(code))
                commands += 1
        elif language == "text" and not left_out:
            for line in text.splitlines():
                assert line in output, f"{line!r} is not in:\n{output}"
                promises += 1
    return commands, promises


@pytest.mark.conformance
def test_the_tutorial(shell: Shell, tmp_path: Path, require_tool: Callable[[str], str]) -> None:
    require_tool("gcc")
    commands, promises = walk("tutorial.md", shell, tmp_path / "work")
    assert commands >= 8
    assert promises >= 8
    assert "<html" in (tmp_path / "work" / "report.html").read_text()


@pytest.mark.conformance
@pytest.mark.parametrize(
    ("page", "found"),
    [("failure_interpretation.md", (1, 11)), ("adding_tests.md", (3, 3)), ("coverage.md", (5, 6))],
)
def test_a_page_is_as_it_says(shell: Shell, tmp_path: Path, page: str, found: tuple[int, int]) -> None:
    assert walk(page, shell, tmp_path / "work", everything=False) == found


@pytest.mark.conformance
@pytest.mark.parametrize("page", ["failure_interpretation.md", "coverage.md"])
def test_a_page_is_as_it_says_with_pytorch(shell: Shell, tmp_path: Path, page: str) -> None:
    walk(page, shell, tmp_path / "work")


def test_every_status_has_its_case() -> None:
    page = (DOCS / "failure_interpretation.md").read_text("utf-8")
    listed = re.findall(r"^\| (\w[\w ]*?) \| (yes|no) \|", page, re.MULTILINE)
    assert {name.replace(" ", "_"): fails == "yes" for name, fails in listed} == {
        one.value: one.failed for one in Status
    }


@pytest.mark.conformance
def test_the_workflow(shell: Shell, tmp_path: Path, serve: Callable[..., str]) -> None:
    """The workflow's steps run against a server, except those that install packages or use actions."""
    [text] = [text for note, _, text in blocks("coverage.md") if note == "workflow"]
    job = yaml.safe_load(text)["jobs"]["conformance"]
    server = Ledger(tmp_path / "server.sqlite")
    variables = {**job["env"], "RESULTS_URL": serve(server), "OPTEST_TOKEN": "sesame"}
    steps = [one for one in job["steps"] if "run" in one and not one["run"].startswith("pip ")]
    for step in steps:
        shell(step["run"], **variables)
    assert len(steps) == 4
    local = Ledger(tmp_path / "work" / "results.sqlite")
    assert server.runs() == local.runs()
    [run] = server.runs()
    assert list(server.results(run.run_id)) == list(local.results(run.run_id))
    for name in ("COVERAGE.md", "site/index.html", "badges/stage.svg", "results.xml"):
        assert (tmp_path / "work" / name).exists()


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
