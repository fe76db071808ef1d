"""Hooks before a commit, and forms for issues."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import yaml


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text("utf-8"))


def test_hooks_run_the_tools_of_make_check(repo: Path) -> None:
    """The hooks use the tools' versions of the environment, and none is fetched from elsewhere."""
    (local,) = read(repo / ".pre-commit-config.yaml")["repos"]
    assert local["repo"] == "local"
    checks = (repo / "Makefile").read_text("utf-8").partition("\ncheck:")[2].partition("\n\n")[0]
    for hook in local["hooks"]:
        program = Path(hook["entry"].split()[0])
        assert program.parent.as_posix() == ".venv/bin"
        assert f"$(BIN)/{program.name}" in checks
        assert shutil.which(program.name, path=str(repo / ".venv/bin")) or not (repo / ".venv").exists()


def test_forms_for_issues_ask_for_what_is_needed(repo: Path) -> None:
    forms = [path for path in (repo / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if path.stem != "config"]
    assert len(forms) == 3
    for path in forms:
        form = read(path)
        assert {"name", "description", "body"} <= form.keys()
        names = [item["id"] for item in form["body"]]
        assert len(set(names)) == len(names)
        assert any(item.get("validations", {}).get("required") for item in form["body"])


def test_the_issue_forms_name_commands_that_exist(repo: Path) -> None:
    from torchstone.cli.main import cli

    said = "".join(path.read_text("utf-8") for path in (repo / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
    commands = set(re.findall(r"`torchstone ([a-z]+)", said))
    assert {"doctor", "explain"} <= commands
    assert commands <= cli.commands.keys()
