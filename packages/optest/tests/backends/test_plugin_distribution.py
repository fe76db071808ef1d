"""``company-optest-plugins``: built as a wheel, installed beside optest, found by its entry points."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[4]
DISTRIBUTION = REPOSITORY / "examples" / "optest" / "company-optest-plugins"


def called(*command: object, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *map(str, command)],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the installed distribution; nothing is downloaded."""
    wheels, site = tmp_path_factory.mktemp("wheels"), tmp_path_factory.mktemp("site")
    built = called("-m", "build", "--wheel", "--no-isolation", "--outdir", wheels, DISTRIBUTION)
    assert built.returncode == 0, built.stdout + built.stderr
    [wheel] = wheels.glob("company_optest_plugins-*.whl")
    options = ("--quiet", "--no-index", "--no-deps", "--target")
    done = called("-m", "pip", "install", *options, site, wheel)
    assert done.returncode == 0, done.stderr
    return site


def optest(site: Path, *words: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(site), *sys.path])
    home = str(site / "state")
    return called("-c", "from optest.cli import main; main()", *words, PYTHONPATH=path, OPTEST_HOME=home)


RUN = ("--ledger", "none", "--json")


def counts(done: subprocess.CompletedProcess[str]) -> dict[str, int]:
    assert done.returncode == 0, done.stdout + done.stderr
    return {name: n for name, n in json.loads(done.stdout)["summary"]["counts"].items() if n}


def test_installing_is_enough(installed: Path) -> None:
    found = json.loads(optest(installed, "backends", "--json").stdout)
    assert found["failed_plugins"] == []
    assert {"kind": "npu", "name": "company-npu", "chips": ["c1", "c2"]} in found["backends"]
    assert json.loads(optest(installed, "show", "scaled_relu", "--json").stdout)["aliases"] == {"x": "input0"}


def test_its_operator_runs_on_its_chip(installed: Path) -> None:
    done = optest(installed, "run", "--op", "scaled_relu", "--backend", "npu", "--chip", "c2", *RUN)
    assert counts(done) == {"passed": 12}


def test_chips_differ_and_say_why(installed: Path) -> None:
    done = optest(
        installed,
        "run",
        "--op",
        "relu",
        "--op",
        "mul",
        "--dtype",
        "float64",
        "--backend",
        "company-npu",
        "--chip",
        "c1",
        *RUN,
    )
    assert set(counts(done)) == {"unsupported"}


def test_the_chip_chooses_between_two_drivers_of_a_kind(installed: Path) -> None:
    """optest's own Ascend driver is of kind npu too."""
    done = optest(installed, "run", "--op", "scaled_relu", "--backend", "npu", *RUN)
    assert done.returncode == 2
    assert "2 drivers fit kind 'npu': ascend (" in done.stdout
    assert "company-npu (c1 or c2)" in done.stdout


def test_without_the_distribution_there_is_no_such_driver() -> None:
    done = called(
        "-c", "from optest.cli import main; main()", "run", "--op", "relu", "--backend", "company-npu", *RUN
    )
    assert done.returncode == 2
    assert "unknown backend 'company-npu'" in done.stdout
