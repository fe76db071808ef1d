"""The two packages as their users meet them: versions, pins, wheels, entry points, commands."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import entry_points, version
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PACKAGES = ("optest", "torchstone")


def project(repo: Path, package: str) -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads((repo / "packages" / package / "pyproject.toml").read_text())[
        "project"
    ]
    return table


def requirement_lines(path: Path) -> list[str]:
    lines = (line.partition("#")[0].strip() for line in path.read_text().splitlines())
    return [line for line in lines if line and not line.startswith("-")]


def declared(repo: Path) -> list[Requirement]:
    """Every requirement of either package and its extras, and of development."""
    lines = requirement_lines(repo / "requirements-dev.txt")
    for package in PACKAGES:
        table = project(repo, package)
        lines += table["dependencies"]
        lines += [line for extra in table["optional-dependencies"].values() for line in extra]
    return [requirement for line in lines if (requirement := Requirement(line)).name not in PACKAGES]


def test_both_packages_carry_one_version() -> None:
    optest = pytest.importorskip("optest")
    torchstone = pytest.importorskip("torchstone")
    assert optest.__version__ == torchstone.__version__ == version("optest") == version("torchstone")


def test_every_requirement_is_pinned_inside_its_range(repo: Path) -> None:
    pins = dict(line.split("==") for line in requirement_lines(repo / "constraints.txt"))
    pins = {canonicalize_name(name): pin for name, pin in pins.items()}
    wrong = [
        f"{requirement}: pinned {pins.get(canonicalize_name(requirement.name))}"
        for requirement in declared(repo)
        if not requirement.specifier.contains(pins.get(canonicalize_name(requirement.name), "0"))
    ]
    assert wrong == []


def test_pins_fit_every_build(repo: Path) -> None:
    lines = requirement_lines(repo / "constraints.txt")
    assert [line for line in lines if "+" in line or line.count("==") != 1] == []


def test_optest_requires_no_torch(repo: Path) -> None:
    names = {canonicalize_name(Requirement(line).name) for line in project(repo, "optest")["dependencies"]}
    assert names.isdisjoint({"torch", "torchstone", "jax", "jaxlib"})


@pytest.fixture(scope="module")
def wheels(repo: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, zipfile.ZipFile]:
    """Both wheels, built as a user builds them: the wheel from the source distribution."""
    out = tmp_path_factory.mktemp("wheels")
    for package in PACKAGES:
        command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out)]
        done = subprocess.run(
            [*command, str(repo / "packages" / package)], capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stdout + done.stderr
    return {package: zipfile.ZipFile(next(out.glob(f"{package}-*.whl"))) for package in PACKAGES}


@pytest.mark.parametrize("package", PACKAGES)
def test_wheel_holds_the_sources_and_nothing_else(
    package: str, repo: Path, wheels: dict[str, zipfile.ZipFile]
) -> None:
    source = repo / "packages" / package / "src"
    files = (path.relative_to(source) for path in source.rglob("*") if path.is_file())
    expected = {
        path.as_posix()
        for path in files
        if not any(part == "__pycache__" or part.startswith(".") for part in path.parts)
    }
    names = {name for name in wheels[package].namelist() if ".dist-info/" not in name}
    assert names == expected
    assert f"{package}/py.typed" in names


@pytest.mark.parametrize("package", PACKAGES)
def test_wheel_metadata(package: str, repo: Path, wheels: dict[str, zipfile.ZipFile]) -> None:
    wheel = wheels[package]
    info = next(name.partition("/")[0] for name in wheel.namelist() if ".dist-info/" in name)
    metadata = wheel.read(f"{info}/METADATA").decode()
    assert "Requires-Python: >=3.11\n" in metadata
    assert "License-Expression: Apache-2.0\n" in metadata
    assert wheel.read(f"{info}/licenses/LICENSE") == (repo / "LICENSE").read_bytes()
    if package == "torchstone":
        assert "[console_scripts]\ntorchstone = " in wheel.read(f"{info}/entry_points.txt").decode()


@pytest.mark.parametrize(
    ("group", "name"),
    [
        ("console_scripts", "optest"),
        ("console_scripts", "torchstone"),
        ("optest.backends", "torchstone"),
        ("torch_dynamo_backends", "torchstone"),
    ],
)
def test_entry_points_resolve(group: str, name: str) -> None:
    (entry,) = entry_points(group=group, name=name)
    assert callable(entry.load())


def test_the_command_explains_itself() -> None:
    script = Path(sys.executable).with_name("torchstone")
    done = subprocess.run(
        [script, "--help"], capture_output=True, text=True, timeout=120, env={**os.environ, "NO_COLOR": "1"}
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Usage: torchstone")
