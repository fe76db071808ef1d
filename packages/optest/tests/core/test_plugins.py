from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CODE = """
from optest import bootstrap
for one in bootstrap() + bootstrap():
    if one.source == "OPTEST_PLUGINS":
        print(one.name, one.loaded, one.error)
"""


def load(folder: Path, plugins: str, **modules: str) -> list[str]:
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text)
    environment = {**os.environ, "OPTEST_PLUGINS": plugins, "PYTHONPATH": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


def test_plugins_of_the_environment_load_once(tmp_path: Path) -> None:
    lines = load(tmp_path, " good_plugin ,", good_plugin="print('imported')")
    assert lines == ["imported", "good_plugin True ", "good_plugin True "]


def test_a_broken_plugin_is_named_and_costs_nothing_else(tmp_path: Path) -> None:
    lines = load(
        tmp_path,
        "nowhere_plugin,raising_plugin,leaving_plugin,good_plugin",
        good_plugin="",
        raising_plugin="raise ValueError('no licence')",
        leaving_plugin="import sys; sys.exit(4)",
    )
    assert len(lines) == 8
    assert lines[0].startswith("nowhere_plugin False ModuleNotFoundError: No module named 'nowhere_plugin'")
    assert lines[1].startswith("raising_plugin False ValueError: no licence")
    assert "raising_plugin.py:1" in lines[1]
    assert lines[2].startswith("leaving_plugin False SystemExit: 4")
    assert lines[3] == "good_plugin True "
