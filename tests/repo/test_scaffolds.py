"""Tries ``make new-operator`` and ``make new-builtin`` as a new user would, in a copy of the repository."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Tree = dict[str, bytes]
Copy = Callable[[str], Path]


@pytest.fixture
def copy(repo: Path, tmp_path: Path) -> Copy:
    """``copy("optest")`` copies that package and what tests share, and returns the root of the copy."""

    def make(package: str) -> Path:
        for name in ("pyproject.toml", "conftest.py"):
            shutil.copy(repo / name, tmp_path / name)
        unwanted = shutil.ignore_patterns("__pycache__", ".*")
        for folder in (f"packages/{package}", "tests/helpers"):
            shutil.copytree(repo / folder, tmp_path / folder, ignore=unwanted)
        return tmp_path

    return make


def tree(root: Path) -> Tree:
    """Return the content of every file by path."""
    found = (path for path in root.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in found}


def run(repo: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], cwd=repo, capture_output=True, text=True, timeout=300, env=os.environ
    )


def run_printed(said: str, root: Path, package: str) -> subprocess.CompletedProcess[str]:
    """Run the test command that a scaffold prints, in the copy."""
    (line,) = re.findall(r"^  \.venv/bin/python (-m pytest .*)$", said, re.MULTILINE)
    path = os.pathsep.join([str(root / "packages" / package / "src"), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, *line.split(), "-q", "-p", "no:cacheprovider"],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=550,
        env={**os.environ, "PYTHONPATH": path},
    )


def fill(path: Path, *texts: tuple[str, str], body: str = "") -> None:
    """Replace the line that raises with ``body``, and the first of each pair of ``texts`` with the second."""
    source = path.read_text("utf-8")
    if body:
        source, count = re.subn(r"    raise NotImplementedError\(.*\)\n", lambda _: body, source)
        assert count == 1
    for old, new in texts:
        assert old in source
        source = source.replace(old, new)
    path.write_text(source, "utf-8")


@pytest.mark.parametrize("empty", [False, pytest.param(True, marks=pytest.mark.conformance)])
def test_a_lowering_takes_two_files_and_one_body(repo: Path, copy: Copy, empty: bool) -> None:
    root = copy("torchstone")
    before = tree(root)
    name = "aten.hardsigmoid.default"
    done = run(repo, "tools/new_operator.py", name, "--family", "activation", "--root", str(root))
    assert done.returncode == 0, done.stderr
    changed = sorted(path for path, content in tree(root).items() if before.get(path) != content)
    assert changed == [
        "packages/torchstone/src/torchstone/lowering/aten/activation.py",
        "packages/torchstone/tests/operator_samples/activation.py",
    ]
    assert [line for line in done.stdout.splitlines() if line.startswith("wrote")] == [
        f"wrote {path}" for path in changed
    ]
    lowering = root / changed[0]
    assert "@lowers(aten.hardsigmoid.default, dtypes=FLOATING)" in lowering.read_text("utf-8")
    if empty:
        failed = run_printed(done.stdout, root, "torchstone")
        assert failed.returncode == 1
        assert "express aten.hardsigmoid.default in terms of hlo, given" in failed.stdout
    fill(
        lowering,
        ("Describe the result in one line.", "``min(max(self + 3, 0), 6) / 6``."),
        body="    return hlo.convert(hlo.clamp(0, self + 3, 6) / 6, out.dtype)\n",
    )
    filled = run_printed(done.stdout, root, "torchstone")
    assert filled.returncode == 0, filled.stdout
    assert re.search(r"\b[1-9]\d* passed", filled.stdout)


@pytest.mark.conformance
def test_a_built_in_takes_two_bodies_and_a_point(repo: Path, copy: Copy) -> None:
    root = copy("optest")
    before = tree(root)
    done = run(repo, "tools/new_builtin.py", "rad2deg", "elementwise", "--root", str(root))
    assert done.returncode == 0, done.stderr
    changed = sorted(path for path, content in tree(root).items() if before.get(path) != content)
    written = [line.removeprefix("wrote ") for line in done.stdout.splitlines() if line.startswith("wrote")]
    assert sorted(written) == changed
    assert len(changed) == 4
    descriptor, reference, implementation, points = (root / path for path in written)
    empty = run_printed(done.stdout, root, "optest")
    assert empty.returncode == 1
    assert "write rad2deg as it is defined" in empty.stdout
    fill(descriptor, ("Describe the result in one line.", "x * 180 / pi."))
    fill(
        reference,
        ("from .wide import Array", "from .wide import PI, Array"),
        body="    return values * (180 / PI)\n",
    )
    fill(implementation, body="    return np.rad2deg(values)\n")
    value = "x = [[0.0, 1.0, -2.0]], y = [[0.0, 57.29577951308232, -114.59155902616465]]"
    fill(points, ('x = [[0.5, 1.0]], y = [["work it out by hand"]]', value))
    filled = run_printed(done.stdout, root, "optest")
    assert filled.returncode == 0, filled.stdout


@pytest.mark.sampled(9)
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ("operator", "aten.sin.default"),
            "aten.sin.default is lowered already, in lowering/aten/trigonometry.py",
        ),
        (("operator", "aten.hardsigmoidd"), "ATen has no operator hardsigmoidd; near it: hardsigmoid"),
        (("operator", "aten.sinc.nope"), "aten.sinc has no overload nope: default, out"),
        (("operator", "aten.sinc_.default"), "writes into its arguments"),
        (("operator", "aten.channel_shuffle.default", "--family", "a-b"), "'a-b' is not a name of a module"),
        (("builtin", "relu", "activation"), "'relu' is taken"),
        (("builtin", "softclip", "nope"), "there is no category 'nope': it is one of activation, arithmetic"),
        (("builtin", "softclip", "activation"), "PyTorch has no softclip in torch or torch.nn.functional"),
    ],
)
def test_what_cannot_be_scaffolded_is_said(repo: Path, copy: Copy, words: tuple[str, ...], says: str) -> None:
    kind, *rest = words
    root = copy("optest" if kind == "builtin" else "torchstone")
    before = tree(root)
    done = run(repo, f"tools/new_{kind}.py", *rest, "--root", str(root))
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert tree(root) == before
