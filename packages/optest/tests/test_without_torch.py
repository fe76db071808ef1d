"""optest without PyTorch: in a virtual environment that has only its declared requirements.

The requirements are links to those of this environment, so nothing is downloaded.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PACKAGE = Path(__file__).parents[1]


def required(name: str, seen: set[str]) -> Iterator[Distribution]:
    """Yield the installed distributions that ``name`` needs, without extras."""
    for line in distribution(name).requires or ():
        requirement = Requirement(line)
        key = canonicalize_name(requirement.name)
        if key in seen or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        seen.add(key)
        yield distribution(key)
        yield from required(key, seen)


def link(found: Distribution, site: Path) -> None:
    """Link a distribution's folders and modules into ``site``."""
    tops = {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}
    for top in tops:
        if not (site / top).exists():
            (site / top).symlink_to(Path(str(found.locate_file(top))).resolve())


def called(*command: object, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(
        [str(word) for word in command],
        env={**environment, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of the virtual environment, in which optest's wheel is installed."""
    folder = tmp_path_factory.mktemp("without-torch")
    venv.create(folder / "venv", with_pip=False)
    [site] = (folder / "venv" / "lib").glob("python*/site-packages")
    seen = {"optest-core"}  # its wheel is built below
    for name in ("optest", "optest-core"):
        for found in required(name, seen):
            link(found, site)
    built = called(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, PACKAGE)
    assert built.returncode == 0, built.stdout + built.stderr
    [wheel] = folder.glob("optest_core-*.whl")
    options = ("--quiet", "--no-index", "--no-deps", "--target", site)
    done = called(sys.executable, "-m", "pip", "install", *options, wheel)
    assert done.returncode == 0, done.stderr
    return folder / "venv" / "bin" / "python"


def optest(python: Path, *words: str) -> subprocess.CompletedProcess[str]:
    code = "from optest.cli import main; main()"
    return called(python, "-c", code, *words, "--json", OPTEST_HOME=str(python.parents[2]))


def test_there_is_no_pytorch(python: Path) -> None:
    for name in ("torch", "torchstone", "jax"):
        done = called(python, "-c", f"import {name}")
        assert f"No module named '{name}'" in done.stderr


def test_the_suite_runs(python: Path) -> None:
    """Everything that workers, reports and the ledger need is a declared requirement."""
    reports = [f"{kind}:{python.parent / kind}" for kind in ("json", "junit", "html")]
    done = optest(
        python, "run", "--suite", "builtin", "--shard", "1/60", "--backend", "numpy",
        *(word for report in reports for word in ("--report", report)),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    counts = json.loads(done.stdout)["summary"]["counts"]
    assert counts["passed"] > 100
    assert all((python.parent / kind).stat().st_size for kind in ("json", "junit", "html"))


def test_drivers_of_pytorch_are_named_with_what_they_lack(python: Path) -> None:
    listed = json.loads(optest(python, "backends").stdout)["backends"]
    assert "torch:cpu" in [one["name"] for one in listed]
    done = optest(python, "run", "--op", "relu", "--backend", "torch:cpu", "--ledger", "none")
    assert done.returncode == 3, done.stdout + done.stderr
    assert "the driver 'torch:cpu' needs PyTorch, which is not installed" in done.stdout
    assert "pip install 'optest[torch]'" in done.stdout
