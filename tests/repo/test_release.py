"""``make release`` refuses a tree that is not ready, and says what to fix."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import release

DATED = "# Changelog\n\n## [Unreleased]\n\n## [0.1.0] - 2026-01-31\n\n- first\n"


@pytest.fixture
def root(repo: Path, tmp_path: Path) -> Path:
    """A committed tree with everything that the release check reads, all of it in order."""
    for folder in release.FOLDERS:
        place = tmp_path / "packages" / folder
        (place / "src" / folder).mkdir(parents=True)
        shutil.copy(repo / "packages" / folder / "pyproject.toml", place)
        source = repo / "packages" / folder / "src" / folder / "_version.py"
        if source.exists():
            (place / "src" / folder / "_version.py").write_text('__version__ = "0.1.0"\n')
    (tmp_path / "CHANGELOG.md").write_text(DATED)
    commit(tmp_path)
    return tmp_path


def commit(root: Path) -> None:
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    subprocess.run([*git, "add", "-A"], cwd=root, check=True)
    subprocess.run([*git, "commit", "-qm", "all", "--allow-empty"], cwd=root, check=True)


def test_what_is_in_order_has_no_problems(root: Path) -> None:
    assert release.problems(root) == []


@pytest.mark.parametrize(
    ("file", "text", "says"),
    [
        (
            "packages/optest/src/optest/_version.py",
            '__version__ = "0.2.0"\n',
            (
                "the versions differ: packages/torchstone/src/torchstone/_version.py has 0.1.0, "
                "packages/optest/src/optest/_version.py has 0.2.0, "
                "packages/optest-full/pyproject.toml has 0.1.0"
            ),
        ),
        (
            "CHANGELOG.md",
            "## [Unreleased]\n",
            "CHANGELOG.md has no section 0.1.0: rename [Unreleased] to [0.1.0] - YYYY-MM-DD",
        ),
        (
            "CHANGELOG.md",
            "## [0.1.0]\n",
            "CHANGELOG.md gives the section 0.1.0 no date: write ## [0.1.0] - YYYY-MM-DD",
        ),
        (
            "CHANGELOG.md",
            "## [0.0.9] - 2026-01-01\n## [0.1.0] - 2026-01-31\n",
            "CHANGELOG.md begins with 0.0.9, not with 0.1.0",
        ),
    ],
)
def test_what_is_not_in_order_is_said(root: Path, file: str, text: str, says: str) -> None:
    (root / file).write_text(text)
    commit(root)
    assert release.problems(root) == [says]


def test_what_is_not_committed_is_said(root: Path) -> None:
    (root / "new.txt").write_text("")
    assert release.problems(root) == ["1 file(s) are not committed, such as new.txt"]


def test_the_page_of_packages_is_about_these(repo: Path) -> None:
    text = (repo / "docs" / "packages.md").read_text("utf-8")
    for name in ("`torchstone`", "`optest-core`", "`optest`"):
        assert f"| {name} |" in text
