"""Commands for people and CI: make's targets, commands in the documents, .ci/run, system tools."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def make(repo: Path, require_tool: Callable[[str], str]) -> Run:
    """``make(*arguments, path=None)`` runs make at the repository's root, as from a fresh shell."""
    executable = require_tool("make")

    def run(*arguments: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
        if path is not None:
            environment["PATH"] = str(path)
        return subprocess.run(
            [executable, *arguments], cwd=repo, capture_output=True, text=True, timeout=60, env=environment
        )

    return run


def script(path: Path, body: str) -> None:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def phony_targets(repo: Path) -> set[str]:
    (line,) = re.findall(r"^\.PHONY: (.+)$", (repo / "Makefile").read_text(), re.MULTILINE)
    return set(line.split())


def test_help_explains_every_target(repo: Path, make: Run) -> None:
    explained = re.findall(r"^make ([a-z-]+) +\S", make("help").stdout, re.MULTILINE)
    assert sorted(explained) == sorted(phony_targets(repo))


def test_every_target_can_be_planned(repo: Path, make: Run) -> None:
    done = make("--dry-run", *sorted(phony_targets(repo)))
    assert done.returncode == 0, done.stderr


def test_documents_name_targets_that_exist(repo: Path) -> None:
    documents = [*repo.glob("*.md"), *(repo / "docs").rglob("*.md"), *repo.glob("packages/*/*.md")]
    named = {
        (path.relative_to(repo).as_posix(), target)
        for path in documents
        for target in re.findall(r"(?:^|`)make ([a-z][a-z-]*)", path.read_text("utf-8"), re.MULTILINE)
    }
    targets = phony_targets(repo)
    assert {entry for entry in named if entry[1] not in targets} == set()
    assert {target for path, target in named if path == "README.md"} >= {"demo", "test"}


@pytest.fixture
def bare_path(tmp_path: Path) -> Path:
    """A PATH with a server and a browser, without compilers. Its apt-get only logs its arguments."""
    for tool in ("env", "id"):
        (tmp_path / tool).symlink_to(shutil.which(tool) or tool)
    script(tmp_path / "apt-get", f'echo "$@" >> {tmp_path}/log')
    script(tmp_path / "sudo", 'exec "$@"')
    for tool in ("initdb", "chromium", "chromedriver"):
        script(tmp_path / tool, "")
    return tmp_path


def test_system_deps_installs_what_is_missing(make: Run, bare_path: Path) -> None:
    script(bare_path / "gcc", "")
    done = make("system-deps", path=bare_path)
    assert done.returncode == 0, done.stderr
    assert "apt-get install g++\n" in done.stdout
    update, install = (bare_path / "log").read_text().splitlines()
    assert update.startswith("update")
    assert install.startswith("install")
    assert install.split()[-1] == "g++"


def test_system_deps_leaves_what_is_there(make: Run, bare_path: Path) -> None:
    script(bare_path / "gcc", "")
    script(bare_path / "g++", "")
    done = make("system-deps", path=bare_path)
    assert (done.returncode, done.stdout) == (0, "system-deps: nothing to install\n")
    assert not (bare_path / "log").exists()


def test_system_deps_without_apt_get_says_what_to_install(make: Run, bare_path: Path) -> None:
    (bare_path / "apt-get").unlink()
    done = make("system-deps", path=bare_path)
    assert done.returncode != 0
    assert "missing gcc g++, and no apt-get here: install them by hand" in done.stderr


def test_ci_runs_system_deps_then_the_tests(repo: Path, tmp_path: Path) -> None:
    script(tmp_path / "make", 'echo "$PWD CI=$CI make $*"')
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        [repo / ".ci" / "run"], cwd=tmp_path, capture_output=True, text=True, timeout=60, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"{repo} CI=true make system-deps", f"{repo} CI=true make test"]


def test_a_missing_tool_skips_here_and_fails_in_ci(
    require_tool: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reason = r"no-such-tool is not installed \(make system-deps installs it\)"
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match=reason):
        require_tool("no-such-tool")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match=reason):
        require_tool("no-such-tool")


def test_a_tool_that_is_there_is_found(require_tool: Callable[[str], str]) -> None:
    assert Path(require_tool("sh")).is_absolute()
