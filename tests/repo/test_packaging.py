"""The distributions as users see them: versions, pins, wheels, entry points, commands.

The requirements of each distribution are read from the wheels' own metadata. They are installed without a
package index: links to the packages of this environment take the place of third-party packages.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from email import message_from_bytes
from email.message import Message
from importlib.metadata import distribution, entry_points, version
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PACKAGES = ("optest", "torchstone")
"""The folders with sources. Each has a package with the same name."""
FOLDERS = {"optest-core": "optest", "optest": "optest-full", "torchstone": "torchstone"}
"""Distribution → its folder in ``packages``."""
LEAN = {"click", "jax", "jaxlib", "ml-dtypes", "numpy", "optest-core", "rich", "safetensors", "torch"}
"""The direct requirements of ``pip install torchstone``."""
BEYOND = {"hypothesis", "jsonschema", "pydantic", "pyyaml", "sqlalchemy", "griffelib", "expecttest"}
"""Packages that neither it nor any of its requirements may require."""


def project(repo: Path, name: str) -> dict[str, Any]:
    text = (repo / "packages" / FOLDERS[name] / "pyproject.toml").read_text()
    table: dict[str, Any] = tomllib.loads(text)["project"]
    assert table["name"] == name
    return table


def requirement_lines(path: Path) -> list[str]:
    lines = (line.partition("#")[0].strip() for line in path.read_text().splitlines())
    return [line for line in lines if line and not line.startswith("-")]


def declared(repo: Path) -> list[Requirement]:
    """Return every requirement of the distributions, of their extras, and of development."""
    lines = [
        line
        for line in requirement_lines(repo / "requirements-dev.txt")
        if not line.startswith("./packages/")
    ]
    for name in FOLDERS:
        table = project(repo, name)
        lines += table["dependencies"]
        lines += [line for extra in table.get("optional-dependencies", {}).values() for line in extra]
    return [requirement for line in lines if (requirement := Requirement(line)).name not in FOLDERS]


def test_all_distributions_carry_one_version(repo: Path) -> None:
    import optest
    import torchstone

    assert optest.__version__ == torchstone.__version__ == version("torchstone")
    table = project(repo, "optest")
    assert table["version"] == optest.__version__
    assert f"optest-core=={optest.__version__}" in table["dependencies"]


def test_torchstone_is_lean(repo: Path) -> None:
    names = {
        canonicalize_name(Requirement(line).name) for line in project(repo, "torchstone")["dependencies"]
    }
    assert names == LEAN


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
    for name in ("optest", "optest-core"):
        lines = project(repo, name)["dependencies"]
        names = {canonicalize_name(Requirement(line).name) for line in lines}
        assert names.isdisjoint({"torch", "torchstone", "jax", "jaxlib"})


@pytest.fixture(scope="module")
def wheels(repo: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheels, built as a user builds them: from the source distribution."""
    out = tmp_path_factory.mktemp("wheels")
    for folder in FOLDERS.values():
        command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out)]
        done = subprocess.run(
            [*command, str(repo / "packages" / folder)], capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stdout + done.stderr
    return {name: next(out.glob(f"{name.replace('-', '_')}-0*.whl")) for name in FOLDERS}


def metadata_of(wheel: Path) -> Message:
    """The metadata of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(one for one in archive.namelist() if one.endswith(".dist-info/METADATA"))
        return message_from_bytes(archive.read(name))


@pytest.mark.parametrize("name", FOLDERS)
def test_wheel_holds_the_sources_and_nothing_else(name: str, repo: Path, wheels: dict[str, Path]) -> None:
    folder = FOLDERS[name]
    source = repo / "packages" / folder / "src"
    files = (path.relative_to(source) for path in source.rglob("*") if path.is_file())
    expected = {
        path.as_posix()
        for path in files
        if not any(part == "__pycache__" or part.startswith(".") for part in path.parts)
    }
    with zipfile.ZipFile(wheels[name]) as wheel:
        names = {one for one in wheel.namelist() if ".dist-info/" not in one}
    assert names == expected
    assert (f"{folder}/py.typed" in names) is (folder in PACKAGES)


@pytest.mark.parametrize("name", FOLDERS)
def test_wheel_metadata(name: str, repo: Path, wheels: dict[str, Path]) -> None:
    metadata = metadata_of(wheels[name])
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["License-Expression"] == "Apache-2.0"
    with zipfile.ZipFile(wheels[name]) as wheel:
        info = next(one.partition("/")[0] for one in wheel.namelist() if ".dist-info/" in one)
        assert wheel.read(f"{info}/licenses/LICENSE") == (repo / "LICENSE").read_bytes()
        if name != "optest":
            script = name.partition("-")[0]
            assert f"[console_scripts]\n{script} = " in wheel.read(f"{info}/entry_points.txt").decode()


def needed(requirements: Iterable[str], extra: str = "") -> set[str]:
    """Return the names of the distributions that requirements need, directly or indirectly."""
    found: set[str] = set()
    left = [(Requirement(line), extra) for line in requirements]
    while left:
        one, extra = left.pop()
        name = canonicalize_name(one.name)
        if (
            name in found
            or name in FOLDERS
            or not (one.marker is None or one.marker.evaluate({"extra": extra}))
        ):
            continue
        found.add(name)
        left += [(Requirement(line), "") for line in distribution(name).requires or ()]
    return found


@dataclass(frozen=True)
class Installed:
    """A virtual environment that holds some of our wheels and what they require."""

    python: Path
    others: set[str]

    def run(self, *words: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            list(map(str, words)), capture_output=True, text=True, timeout=300, cwd=folder, env=CLEAN
        )


CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "TORCHSTONE"))}
"""Environment variables without those that could make a tested environment use the sources of this tree."""


def install(place: Path, *wheels: Path) -> Installed:
    """Install our wheels with pip, and link the other requirements to the packages of this environment."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True, timeout=120)
    python = place / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--quiet", "--python", str(python), "install"]
    subprocess.run([*pip, "--no-deps", "--no-index", *map(str, wheels)], check=True, timeout=300)
    lines = [line for wheel in wheels for line in metadata_of(wheel).get_all("Requires-Dist", [])]
    others = needed(lines)
    (packages,) = (place / "lib").glob("python*/site-packages")
    for name in others:
        found = distribution(name)
        for top in {path.parts[0] for path in found.files or ()} - {"..", "__pycache__"}:
            link = packages / top
            if not link.exists():
                link.symlink_to(Path(str(found.locate_file(top))))
    return Installed(python, others)


@pytest.fixture(scope="module")
def lean(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """An environment like that of ``pip install torchstone``."""
    return install(tmp_path_factory.mktemp("lean"), wheels["torchstone"], wheels["optest-core"])


def test_torchstone_brings_nothing_of_what_proves(lean: Installed) -> None:
    assert {"torch", "jax", "safetensors", "click", "rich"} <= lean.others
    assert lean.others.isdisjoint(BEYOND)


MODEL = """
import torch

def make():
    return torch.nn.Linear(3, 2), (torch.ones(2, 3),)
"""
LEAN_PROGRAM = """
import json, sys
import torchstone
from torchstone.cli.main import cli

assert torchstone.__file__.startswith(sys.prefix), torchstone.__file__
codes = {}
for words in json.loads(sys.argv[1]):
    try:
        codes[" ".join(words)] = cli.main(words, prog_name="torchstone", standalone_mode=False)
    except SystemExit as error:
        codes[" ".join(words)] = error.code
with open("codes.json", "w") as file:
    json.dump(codes, file)
"""
LEAN_COMMANDS = (
    "doctor",
    "ops",
    "export model.py:make -o model.stone",
    "run model.stone",
    "explain model.py:make",
    "verify model.py:make",
    "redirect explain script.py",
)
"""Commands that need no extra."""
PROVING_COMMANDS = {
    "gaps check --namespace torch.fft": "griffe",
    "faults --op add --lowerings 1": "expecttest",
}
"""Commands that need the extra → the package whose absence they report first."""


def test_what_is_lean_works_and_the_rest_says_in_one_line_what_it_needs(
    lean: Installed, tmp_path: Path
) -> None:
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "script.py").write_text("import torch\nprint(torch.ones(2, device='cuda').sum().item())\n")
    commands = [one.split() for one in (*LEAN_COMMANDS, *PROVING_COMMANDS)]
    done = lean.run(lean.python, "-c", LEAN_PROGRAM, json.dumps(commands), folder=tmp_path)
    assert done.returncode == 0, done.stderr
    codes = json.loads((tmp_path / "codes.json").read_text())
    assert codes == dict.fromkeys(LEAN_COMMANDS, 0) | dict.fromkeys(PROVING_COMMANDS, 3), done.stderr
    for command, module in PROVING_COMMANDS.items():
        said = f"torchstone {command.split()[0]}"
        lines = [line for line in done.stderr.splitlines() if line.startswith(said)]
        assert len(lines) == 1, done.stderr
        assert module in lines[0]
    assert done.stderr.count("next: pip install 'torchstone[proof]'") == len(PROVING_COMMANDS)
    script = lean.run(lean.python.with_name("torchstone"), "redirect", "run", "script.py", folder=tmp_path)
    assert (script.returncode, script.stdout) == (0, "2.0\n"), script.stderr


def test_optest_without_the_rest_says_so_in_one_line(lean: Installed, tmp_path: Path) -> None:
    optest = lean.python.with_name("optest")
    assert lean.run(optest, "--version", folder=tmp_path).returncode == 0
    done = lean.run(optest, "run", "--op", "relu", "--backend", "stub", folder=tmp_path)
    assert (done.returncode, done.stdout) == (3, "")
    assert re.fullmatch(
        r"optest run: this needs \w+, which is not installed\n  next: pip install optest\n", done.stderr
    )


def test_optest_runs_where_all_of_it_is_installed(
    wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("optest")
    whole = install(folder / "venv", wheels["optest"], wheels["optest-core"])
    assert whole.others.isdisjoint({"torch", "torchstone", "jax"})
    done = whole.run(
        *(whole.python.with_name("optest"), "run", "--op", "relu", "--backend", "stub", "--ledger", "none"),
        folder=folder,
    )
    assert done.returncode == 0, done.stderr


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
