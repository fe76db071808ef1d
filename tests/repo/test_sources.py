"""Checks the sources as text: sizes, unfinished work, paths of one machine."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

LONGEST_MODULE = 450
TEXT_SUFFIXES = {".c", ".cfg", ".cpp", ".css", ".h", ".html", ".ini", ".js", ".json", ".md", ".py", ".sh"}
TEXT_SUFFIXES |= {".toml", ".txt", ".yaml", ".yml"}
TEXT_NAMES = {"Makefile", "run", ".gitignore"}
PLACES = ("packages", "tests", "benchmarks", "examples", "docs", "tools", ".ci")

UNFINISHED = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK)\b")
HOME = re.compile(r"(?<![\w.])/(?:(?:home|root|Users)/\w|tmp/\w+/packages/)")


def text_files(repo: Path) -> Iterator[Path]:
    """Yield every text file that is written by hand. Generated folders and caches are left out."""
    yield from (path for path in repo.iterdir() if path.suffix in TEXT_SUFFIXES or path.name in TEXT_NAMES)
    for place in PLACES:
        for path in (repo / place).rglob("*"):
            generated = {"__pycache__", "build", "dist"} & set(path.relative_to(repo).parts)
            wanted = path.suffix in TEXT_SUFFIXES or path.name in TEXT_NAMES
            if path.is_file() and wanted and not generated:
                yield path


@pytest.fixture(scope="module")
def texts(repo: Path) -> dict[str, str]:
    """Path in the repository → text."""
    return {path.relative_to(repo).as_posix(): path.read_text("utf-8") for path in text_files(repo)}


def lines_matching(pattern: re.Pattern[str], texts: dict[str, str]) -> list[str]:
    return [
        f"{name}:{number}: {line.strip()}"
        for name, text in texts.items()
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]


def test_the_files_are_found(texts: dict[str, str]) -> None:
    assert {
        "Makefile",
        ".ci/run",
        "pyproject.toml",
        "packages/torchstone/src/torchstone/errors.py",
        "packages/optest/src/optest/__init__.py",
        "tests/repo/test_sources.py",
    } <= set(texts)


def test_modules_are_short(texts: dict[str, str]) -> None:
    modules = {name: text for name, text in texts.items() if "/src/" in name and name.endswith(".py")}
    long = {name: n for name, text in modules.items() if (n := len(text.splitlines())) > LONGEST_MODULE}
    assert not long, f"longer than {LONGEST_MODULE} lines: two subjects in one file? {long}"


def test_nothing_is_left_unfinished(texts: dict[str, str]) -> None:
    assert lines_matching(UNFINISHED, texts) == []


def test_no_paths_of_a_machine(texts: dict[str, str]) -> None:
    assert lines_matching(HOME, texts) == []


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        (UNFINISHED, "x = 1  # TO" + "DO: later"),
        (UNFINISHED, "FIX" + "ME"),
        (HOME, 'open("/' + 'home/me/model.py")'),
        (HOME, "see /" + "root/x"),
        (HOME, "at /" + "tmp/x/packages/y.py"),
    ],
)
def test_the_patterns_find_what_they_look_for(pattern: re.Pattern[str], line: str) -> None:
    assert lines_matching(pattern, {"f.py": "ok\n" + line}) == [f"f.py:2: {line}"]


@pytest.mark.parametrize("line", ["https://x.org/home/me", "mastodon", "docs/root/x"])
def test_the_patterns_leave_the_rest(line: str) -> None:
    assert not UNFINISHED.search(line)
    assert not HOME.search(line)
